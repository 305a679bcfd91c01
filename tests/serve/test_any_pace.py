"""No sound is lost at any pace: whatever its pieces, the recogniser gets each sample once."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.fakes import LoudIsSpeech, ScriptedBrain
from tests.serve.conftest import Server, pcm, serving
from tests.serve.test_realtime import WORDS, Client, session
from voxtui.dialogue.data import SAMPLE_RATE, Token, UserTranscript, Utterance
from voxtui.dialogue.protocols import TurnRequest
from voxtui.serve.realtime.session_settings import RATE

WORDS_OF_ITEM = "conversation.item.input_audio_transcription.completed"
NO_WORDS = "conversation.item.input_audio_transcription.failed"


class EarBrain(ScriptedBrain):
    """FakeBrain that writes down what it was given to recognise, each utterance once."""

    def __init__(self) -> None:
        super().__init__()
        self.utterances: dict[int, Utterance] = {}

    def reply(self, request: TurnRequest) -> Iterator[UserTranscript | Token]:
        said = request.user_input
        if isinstance(said, Utterance):
            self.utterances[id(said)] = said
        yield from super().reply(request)

    def transcribe(self, said, cancelled):
        self.utterances[id(said)] = said
        yield from super().transcribe(said, cancelled)


class SlowDetector(LoudIsSpeech):
    """Takes a while for each frame, so that a client is far ahead of the engine."""

    def probability(self, frame):
        threading.Event().wait(0.003)
        return super().probability(frame)


BRAIN = EarBrain()

running: list[Server] = []


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    with (
        serving(brain=BRAIN, sets=4) as one,
        serving(brain=BRAIN, sets=4, detector=SlowDetector()) as slow,
    ):
        running.extend((one, slow))
        yield
    running.clear()


def speech(*milliseconds: int, rate: int, pause_ms: int) -> np.ndarray:
    """Return silence, then a stretch of each length that is louder and louder, and silence."""
    quiet = np.zeros(rate * pause_ms // 1000, np.float32)
    loud = [
        np.linspace(0.2, 0.9, rate * length // 1000, dtype=np.float32) for length in milliseconds
    ]
    return np.concatenate([quiet, *(part for one in loud for part in (one, quiet))])


@contextmanager
def connected(update: dict) -> Iterator[Client]:
    BRAIN.__init__()
    with session(running[0], update) as client:
        yield client


def append(client: Client, sound: np.ndarray, pieces: list[int], gap_s: float, pace: float) -> None:
    """Send `sound` in pieces of so many ms, each after its length divided by `pace`."""
    data, at, number = pcm(sound), 0, 0
    while at < len(data):
        length = pieces[number % len(pieces)]
        piece = data[at : at + 2 * RATE * length // 1000]
        client.send("input_audio_buffer.append", audio=base64.b64encode(piece).decode())
        at, number = at + len(piece), number + 1
        time.sleep(length / 1000 / pace if pace else 0.0)
        if number == len(pieces):
            time.sleep(gap_s)


def loud(samples: np.ndarray) -> np.ndarray:
    return samples[np.abs(samples) > 0.15]


def same(heard: list[np.ndarray], sound: np.ndarray, rate: int) -> None:
    """Check that `heard` is `sound`, each sample once and in its order."""
    got = loud(np.concatenate(heard)) if heard else np.zeros(0)
    wanted = loud(sound)
    assert len(got) / SAMPLE_RATE == pytest.approx(len(wanted) / rate, abs=0.004)
    place = np.linspace(0, len(wanted) - 1, len(got))
    assert np.abs(got - wanted[place.round().astype(int)]).mean() < 0.02


def heard_by_brain() -> list[np.ndarray]:
    return [utterance.samples for utterance in BRAIN.utterances.values()]


PIECES = st.lists(st.integers(20, 500), min_size=1, max_size=5)
GAPS = st.sampled_from([0.0, 0.05, 0.3])
PACES = st.sampled_from([0, 0, 0, 30, 8])
"""times as fast as it was spoken; 0: as fast as the socket takes it"""

many = settings(max_examples=60, deadline=None)


@pytest.mark.slow
@many
@given(PIECES, GAPS, PACES)
def test_push_to_talk(pieces, gap_s, pace):
    sound = speech(700, 300, rate=RATE, pause_ms=200)
    with connected(WORDS) as client:
        for number in range(2):
            append(client, sound, pieces, gap_s, pace)
            client.send("input_audio_buffer.commit")
            if number:
                client.send("response.create")
                client.until("response.done")
            else:
                client.until("input_audio_buffer.committed")
        while len(client.of(WORDS_OF_ITEM)) < 2:
            client.next()
        same(heard_by_brain(), np.concatenate([sound, sound]), RATE)


@pytest.mark.slow
@many
@given(PIECES, GAPS, PACES, st.sampled_from(["server_vad", "semantic_vad"]), st.booleans())
@example([350, 350, 350], 2.0, 0, "server_vad", False)  # a gap 50 ms after speech has begun
def test_detected_speech(pieces, gap_s, pace, detection, answers):
    sound = speech(600, 900, 500, rate=RATE, pause_ms=1000)
    listening = {"type": detection, "create_response": answers}
    update = {"audio": {"input": {"turn_detection": listening, "transcription": {"model": "x"}}}}
    with connected(update) as client:
        append(client, sound, pieces, gap_s, pace)
        while len(client.of(WORDS_OF_ITEM)) < 3:
            client.next()
        same(heard_by_brain(), sound, RATE)
        assert len(client.of("input_audio_buffer.committed")) == 3
        assert len(client.of("response.created")) <= 3 * answers
        assert not client.of("error")


MAY_BE_SAID = {"input_audio_buffer_commit_empty", "conversation_already_has_active_response"}
"""to a client that commits, or asks for an answer, where the detection has done so already"""


def burst(detection: str | None, answers: bool, ends: bool, commits: bool, pieces: list[int]):
    """Send a question at once, from the settings to the request, and check that it is answered.

    `ends`: the sound ends in silence. `commits`: the client commits it.
    """
    sound = speech(600, rate=RATE, pause_ms=1000)
    if not ends:
        sound = sound[:-RATE]
    listening = detection and {"type": detection, "create_response": answers}
    heard = {"turn_detection": listening, "transcription": {"model": "x"}}
    BRAIN.__init__()
    with running[1].client.websocket("/v1/realtime", max_message_size_bytes=2**22) as socket:
        client = Client(socket)
        client.send("session.update", session={"audio": {"input": heard}})
        append(client, sound, pieces, 0.0, 0)
        if commits:
            client.send("input_audio_buffer.commit")
        client.send("response.create")
        client.settled()
        while not client.of(WORDS_OF_ITEM) or not client.of("response.done"):
            client.next()
        client.settled()
        while len(client.of("response.done")) < len(client.of("response.created")):
            client.next()
    same(heard_by_brain(), sound, RATE)
    assert len(client.of("input_audio_buffer.committed")) == 1
    responses = [event["response"] for event in client.of("response.done")]
    assert {response["status"] for response in responses} == {"completed"}
    assert responses[0]["output"]
    assert isinstance(BRAIN.said[0], Utterance)
    assert {event["error"]["code"] for event in client.of("error")} - {NO_ITEM} <= MAY_BE_SAID


NO_ITEM = "item_retrieve_invalid_item_id"


@pytest.mark.parametrize(
    ("detection", "answers", "ends", "commits"),
    [
        (None, False, True, True),
        ("server_vad", True, True, False),
        ("server_vad", False, True, False),
        ("server_vad", False, False, True),
        ("semantic_vad", True, False, True),
        ("semantic_vad", True, True, True),
    ],
)
def test_a_question_in_one_burst(detection, answers, ends, commits):
    burst(detection, answers, ends, commits, [500])


@pytest.mark.slow
@many
@given(
    st.sampled_from([None, "server_vad", "semantic_vad"]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    PIECES,
)
def test_any_question_in_one_burst(detection, answers, ends, commits, pieces):
    burst(detection, answers, ends, commits or detection is None or not ends, pieces)


def test_two_utterances_in_one_burst_are_both_heard_and_answered():
    sound = speech(600, 400, rate=RATE, pause_ms=1000)
    update = {"audio": {"input": {"transcription": {"model": "x"}}}}
    BRAIN.__init__()
    with session(running[1], update) as client:
        append(client, sound, [500], 0.0, 0)
        while len(client.of(WORDS_OF_ITEM)) < 2 or not client.of("response.done"):
            client.next()
        client.settled()
    same(heard_by_brain(), sound, RATE)
    assert [e["response"]["status"] for e in client.of("response.done")] == ["completed"]


def test_speech_that_was_sent_before_an_answer_was_requested_is_heard():
    sound = speech(600, rate=RATE, pause_ms=1000)
    listening = {"type": "server_vad", "create_response": False}
    update = {"audio": {"input": {"turn_detection": listening, "transcription": {"model": "x"}}}}
    for _ in range(5):
        with connected(update) as client:
            append(client, sound, [500], 0.0, 0)
            client.send("response.create")
            while not (client.of(WORDS_OF_ITEM) and client.of("response.done")):
                client.next()
            same(heard_by_brain(), sound, RATE)
