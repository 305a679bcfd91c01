"""The contract of every Brain, the fake one included."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.brains.conftest import small
from tests.fakes import ScriptedBrain
from tests.openai_server import serving
from voxtui.brains.embedded.embedded_brain import EmbeddedBrain
from voxtui.brains.remote.remote_brain import RemoteBrain
from voxtui.brains.voxtral.brain import VoxtralBrain
from voxtui.dialogue.data import Token, UserTranscript, Utterance
from voxtui.dialogue.protocols import Brain, TurnRequest
from voxtui.dialogue.recording import Recording
from voxtui.dialogue.timestamps import Timestamps
from voxtui.settings.schema import BrainConfig, Config, GenerationConfig, RemoteBrainConfig

Flag = threading.Event


KINDS = ["scripted", "embedded", "voxtral", "remote"]


@pytest.fixture(scope="module", params=KINDS)
def brain(request: pytest.FixtureRequest, tiny_voxtral: Path) -> Iterator[Brain]:
    with serving() as server:
        brain: Brain
        match request.param:
            case "scripted":
                brain = ScriptedBrain()
            case "embedded":
                brain = EmbeddedBrain(small(max_new_tokens=8))
            case "voxtral":
                generation = GenerationConfig(max_new_tokens=8)
                brain = VoxtralBrain(Config(generation=generation), tiny_voxtral)
            case _:
                remote = RemoteBrainConfig(url=server.url)
                brain = RemoteBrain(Config(brain=BrainConfig(remote=remote)))
        brain.warm_up(lambda step, fraction: None)
        yield brain
        brain.close()
        brain.close()  # does nothing


def test_a_reply_is_the_users_words_then_tokens(brain: Brain) -> None:
    brain.listen(TurnRequest(), Recording())
    items = list(brain.reply(TurnRequest((), "hello")))
    assert items[0] == UserTranscript("hello")
    assert items[1:] and all(isinstance(item, Token) for item in items[1:])


def test_a_text_that_was_read_ahead_is_answered(brain: Brain) -> None:
    for text in ("h", "hello", "hello y"):
        brain.read_ahead(TurnRequest((), text))
    items = list(brain.reply(TurnRequest((), "hello you")))
    assert items[0] == UserTranscript("hello you")
    assert items[1:] and all(isinstance(item, Token) for item in items[1:])


def test_a_cancelled_turn_gives_no_tokens(brain: Brain) -> None:
    cancelled = Flag()
    cancelled.set()
    assert not [
        i
        for i in brain.reply(TurnRequest((), "hello", Timestamps(), cancelled))
        if isinstance(i, Token)
    ]


def test_a_turn_after_a_cancelled_one_works(brain: Brain) -> None:
    cancelled = Flag()
    for _ in brain.reply(TurnRequest((), "hello", Timestamps(), cancelled)):
        cancelled.set()
    assert [i for i in brain.reply(TurnRequest((), "hello")) if isinstance(i, Token)]


def test_transcribing_yields_tokens(brain: Brain) -> None:
    said = Utterance(np.zeros(16_000, np.float32), ((0.0, 1.0),), 0.0)
    tokens = list(brain.transcribe(said, Flag()))
    assert tokens and all(isinstance(token, Token) for token in tokens)
