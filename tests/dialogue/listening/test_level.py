import pytest

from voxtui.dialogue.listening.level import decibels, describe_overflows, diagnose_level


@pytest.mark.parametrize(
    ("peak", "expected"),
    [(1.0, "0 dBFS"), (0.1, "−20 dBFS"), (0.0, "digital silence"), (1e-26, "digital silence")],
)
def test_a_level_is_shown_in_decibels(peak, expected):
    assert decibels(peak) == expected


@pytest.mark.parametrize(
    ("name", "peak", "why"),
    [
        ("Headset", 0.01, None),
        ("Headset", 0.0, "muted"),
        ("Headset", 0.001, "No more than −60 dBFS came from 'Headset': it is turned down"),
        ("Monitor of Headphones", 0.0, "not a microphone: it records what a speaker plays"),
    ],
)
def test_a_level_that_is_too_low_is_explained_by_its_likely_cause(name, peak, why):
    sentence = diagnose_level(name, peak)
    assert sentence is None if why is None else why in (sentence or "")


def test_the_notice_of_lost_sound_gives_the_count():
    assert "(once)" in describe_overflows(1) and "(3 times)" in describe_overflows(3)
