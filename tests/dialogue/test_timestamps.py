"""The record of a turn: its marks, and the numbers that are derived from them."""

import numpy as np
import pytest

from voxtui.dialogue.data import Utterance
from voxtui.dialogue.timestamps import Milestone, Outcome, Timestamps, Turn


def turn(tokens=2, drafted=None, hidden_s=0.41, **timestamps):
    return Turn(
        1,
        "scripted",
        Outcome.ANSWERED,
        timestamps,
        tokens=tokens,
        drafted=drafted,
        speculative_s=hidden_s,
    )


def test_the_first_write_of_a_mark_counts():
    timestamps = Timestamps()
    timestamps.record(Milestone.RELEASED, 5.0)
    timestamps.record(Milestone.FIRST_TOKEN, 5.1)
    timestamps.record(Milestone.FIRST_TOKEN, 5.9)
    assert timestamps.since_release() == {"released": 0.0, "first_token": pytest.approx(0.1)}


def test_a_few_tokens_have_no_speed():
    times = {"released": 0.0, "first_token": 0.1, "last_token": 0.3}
    assert turn(tokens=1, drafted=1, **times).tokens_per_s is None
    assert turn(tokens=11, drafted=1, **times).tokens_per_s == pytest.approx(50)


def test_drafted_tokens_have_no_speed():
    times = {"released": 0.0, "first_token": 0.1, "last_token": 0.3}
    assert turn(tokens=40, drafted=40, **times).tokens_per_s is None
    assert turn(tokens=40, drafted=38, **times).tokens_per_s is None
    assert turn(tokens=40, drafted=30, **times).tokens_per_s == pytest.approx(50)


def test_an_opening_before_the_prompt_was_read_has_no_speed():
    times = {"released": 0.0, "first_token": 0.1, "prefilled": 0.5, "last_token": 0.7}
    assert turn(tokens=12, drafted=1, **times).tokens_per_s == pytest.approx(50)


def test_a_turn_with_hidden_work_whose_drafted_tokens_are_unknown_has_no_speed():
    times = {"released": 0.0, "first_token": 0.1, "last_token": 0.3}
    assert turn(tokens=40, **times).tokens_per_s is None
    assert turn(tokens=41, hidden_s=0.0, **times).tokens_per_s == pytest.approx(200)


def test_sound_that_is_too_loud_for_a_wav_is_as_loud_as_it_can_be():
    samples = np.array([0.5, 1.5, -1.5], np.float32)
    wav = Utterance(samples, (), 0.0).as_wav()
    assert np.frombuffer(wav[-6:], "<i2").tolist() == [16384, 32767, -32767]


def test_json_is_in_milliseconds_and_leaves_out_what_was_not_reached():
    said = turn(released=0.0, first_token=0.12344).as_json()
    assert (said["ttft_ms"], said["hidden_ms"]) == (123.4, 410.0)
    assert said["first_sound_ms"] is None and "first_sound" not in said["marks"]
