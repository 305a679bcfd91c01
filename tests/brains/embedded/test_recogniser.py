"""The recogniser, with real weights where a test needs them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.brains.conftest import Question
from voxtui.bench.word_errors import word_errors
from voxtui.brains.embedded.recogniser import LONG_SECONDS, Moonshine, stretches
from voxtui.dialogue.data import SAMPLE_RATE, Utterance
from voxtui.errors import ModelError


@pytest.mark.models
def test_spoken_questions_are_recognised(questions: list[Question]) -> None:
    recogniser = Moonshine()
    recogniser.load()
    heard = [recogniser.recognise(q.utterance().samples) for q in questions]
    recogniser.close()
    assert word_errors(zip([q.text for q in questions], heard, strict=True)) <= 0.05


@pytest.mark.models
def test_a_recogniser_that_does_not_load_is_one_sentence_and_is_freed_without_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from moonshine_voice import transcriber
    from moonshine_voice.errors import MoonshineError

    def no_room() -> None:
        raise MoonshineError("No room for the library.")

    monkeypatch.setattr(transcriber, "_MoonshineLib", no_room)
    with pytest.raises(
        ModelError, match=r"did not load: No room for the library\. Is there memory"
    ):
        Moonshine().load()


def test_long_speech_is_cut_at_pauses_only_and_grows_at_its_end() -> None:
    speech = tuple((i * 4.0, i * 4.0 + 3.5) for i in range(15))
    full = Utterance(np.zeros(60 * SAMPLE_RATE, np.float32), speech, 0.0)
    parts = stretches(full)
    assert parts[0][0] == 0 and parts[-1][1] == len(full.samples)
    assert all(a[1] == b[0] for a, b in itertools.pairwise(parts))
    assert all(b - a >= LONG_SECONDS * SAMPLE_RATE for a, b in parts[:-1])
    for _, end in parts[:-1]:
        assert not any(start < end / SAMPLE_RATE < stop for start, stop in speech)
    shorter = Utterance(np.zeros(40 * SAMPLE_RATE, np.float32), speech[:10], 0.0)
    assert stretches(shorter)[:-1] == parts[: len(stretches(shorter)) - 1]
