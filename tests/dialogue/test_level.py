import pytest

from voxtui.dialogue.level import complaint, decibels


@pytest.mark.parametrize(
    ("peak", "told"),
    [(1.0, "0 dBFS"), (0.1, "−20 dBFS"), (0.0, "digital silence"), (1e-26, "digital silence")],
)
def test_a_level_is_told_in_decibels(peak, told):
    assert decibels(peak) == told


@pytest.mark.parametrize(
    ("name", "peak", "why"),
    [
        ("Headset", 0.01, None),
        ("Headset", 0.0, "muted"),
        ("Headset", 0.001, "No more than −60 dBFS came from 'Headset': it is turned down"),
        ("Monitor of Headphones", 0.0, "no microphone: it hears what a speaker plays"),
    ],
)
def test_a_microphone_that_hears_too_little_is_named_with_the_likely_cause(name, peak, why):
    said = complaint(name, peak)
    assert said is None if why is None else why in (said or "")
