"""The recogniser, with real weights where a test needs them."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from benchmarks.word_errors import word_errors
from tests.brains.conftest import Question
from voxtui.audio.resampling import resample
from voxtui.brains.embedded.recogniser import (
    END,
    LONG_SECONDS,
    Beginning,
    Moonshine,
    extended,
    louder,
    read_pieces,
    read_tokens,
    same_words,
    stretches,
)
from voxtui.dialogue.data import SAMPLE_RATE, Utterance
from voxtui.dialogue.listening.heard_words import after_name
from voxtui.errors import ModelError
from voxtui.settings.schema import VoiceConfig
from voxtui.voices.hibari import HibariVoice


@pytest.mark.models
def test_spoken_questions_are_recognised(questions: list[Question]) -> None:
    recogniser = Moonshine()
    recogniser.load()
    heard = [recogniser.recognise(q.utterance().samples).text for q in questions]
    recogniser.close()
    assert word_errors(zip([q.text for q in questions], heard, strict=True)) <= 0.05


def test_weights_that_do_not_load_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voxtui.brains.embedded.recogniser.weights", lambda: tmp_path)
    (tmp_path / "encoder_model.ort").write_bytes(b"no model")
    with pytest.raises(ModelError, match=r"did not load: .*verification failed\. Is there memory"):
        Moonshine().load()


@pytest.mark.models
def test_too_little_memory_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def session(*_: object, **__: object) -> None:
        raise MemoryError("std::bad_alloc")

    monkeypatch.setattr("onnxruntime.InferenceSession", session)
    with pytest.raises(ModelError, match=r"did not load: std::bad_alloc\. Is there memory left"):
        Moonshine().load()


def test_tokens_become_words_and_an_uncertain_word_is_told() -> None:
    table = b"\x05<unk>" + bytes([0x84, 0x01]) + b"x" * 132 + b"\x02at"
    assert read_pieces(table) == [b"<unk>", b"x" * 132, b"at"]
    pieces = ["▁", "Rey", "k", "javik", "▁is", "▁", "caf", "é", "?"]
    heard = read_tokens(
        [piece.encode() for piece in pieces], [-0.1, -0.1, -2.0, -0.1, -0.1, 0.0, -0.2, -0.3, -3.0]
    )
    assert (heard.text, heard.doubtful, heard.tokens) == ("Reykjavik is café?", (0,), 9)


@pytest.mark.parametrize(
    ("digits", "words"),
    [
        ("7", "seven"),
        ("It's 10.", "it's ten"),
        ("In 1969", "in nineteen sixty nine"),
        ("1-2-3", "one two three"),
        ("20 or 13?", "twenty or thirteen"),
    ],
)
def test_a_number_is_the_same_in_digits_and_in_words(digits: str, words: str) -> None:
    assert same_words(digits) == same_words(words) == words


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


def test_the_beam_finds_the_likeliest_sentence_where_its_first_word_is_not_the_likeliest() -> None:
    """Words 3 and 4 begin the sentence; after 3 nothing is likely, after 4 the end is certain."""
    first = np.log(np.full((1, 12), 1e-9, np.float32))
    first[0, 3], first[0, 4] = np.log(0.55), np.log(0.45)
    live, sources, ended = extended([Beginning((1,))], first)
    assert ([path.tokens for path in live], sources, ended) == ([(1, 3), (1, 4)], [0, 0], [])
    then = np.log(np.full((2, 12), 0.08, np.float32))
    then[1] = np.log(1e-9)
    then[1, END] = np.log(0.99)
    longer, _, (best, *_) = extended(live, then)
    assert best.tokens == (1, 4)
    assert all(path.score < best.score for path in longer)
    assert not extended(live, then, best.score)[0]


def test_clear_speech_leaves_one_beginning() -> None:
    logits = np.zeros((1, 12), np.float32)
    logits[0, 7] = 20.0
    live, sources, _ = extended([Beginning((1,))], logits)
    assert ([path.tokens for path in live], sources) == ([(1, 7)], [0])


@pytest.mark.models
def test_a_whisper_is_recognised_as_the_same_words_aloud(questions: list[Question]) -> None:
    recogniser = Moonshine()
    recogniser.load()
    aloud = questions[0].utterance().samples
    words = [recogniser.recognise(aloud * np.float32(gain)).text for gain in (1.0, 0.06)]
    recogniser.close()
    assert words[0] == words[1]


def test_silence_and_no_sound_at_all_are_not_amplified_into_numbers_that_overflow() -> None:
    assert np.isfinite(louder(np.zeros(1600, np.float32))).all()
    assert len(louder(np.zeros(0, np.float32))) == 0


@pytest.mark.models
def test_a_name_that_may_have_been_said_is_written_as_it_is_spelt(
    questions: list[Question],
) -> None:
    recogniser = Moonshine()
    recogniser.load()
    voice = HibariVoice(VoiceConfig())
    voice.warm_up(lambda step, fraction: None)
    try:
        spoken = {
            text: np.concatenate([chunk.samples for chunk in voice.speak(text)])
            for text in ("Hey Vox, how old is the moon?", "Hey Vox.", "He walks to work every day.")
        }
    finally:
        voice.close()
    words = [
        recogniser.recognise(resample(samples, 24_000, SAMPLE_RATE), name="Hey Vox").text
        for samples in spoken.values()
    ]
    assert [after_name(heard, "Hey Vox") for heard in words[:2]] == ["how old is the moon?", ""]
    assert words[2] == "He walks to work every day."
    for question in questions[:3]:
        samples = question.utterance().samples
        assert recogniser.recognise(samples, name="Hey Vox") == recogniser.recognise(samples)
    recogniser.close()
