"""Compare replies of the Voxtral brain with those of transformers' `generate`, as a table.

    python -m benchmarks.voxtral.equality

A tiny checkpoint of random weights, float32, greedy, on a CPU. Each case is answered as it comes,
from a draft that was begun at a pause and kept, and with all its work captured and done again.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from benchmarks.voxtral.report import table
from tests.brains.voxtral import tiny_voxtral
from tests.brains.voxtral.taped import tape_instead_of_gpu
from tests.brains.voxtral.turns import Oracle, answered, computed, ids, instruction, made, sound
from tests.fakes import Flag
from voxtui.brains.voxtral.brain import VoxtralBrain
from voxtui.brains.voxtral.prompt import (
    PromptClip,
    token_ids,
    transcription,
    without_trailing_zeros,
)
from voxtui.dialogue.data import FRAME_SAMPLES, SAMPLE_RATE, Frame, Token, Utterance
from voxtui.dialogue.history.history import History
from voxtui.dialogue.live_config import LiveConfig
from voxtui.dialogue.protocols import Past, PastTurn, TurnRequest
from voxtui.dialogue.recording import Recording
from voxtui.settings.schema import Config, HistoryConfig

PAUSE_FRAMES = 8

Reply = Callable[[Past, "Recording | str"], tuple[Token, ...]]


def spoken(seconds: float, seed: int = 0) -> Recording:
    """Return `seconds` of voice, and the silence before the release."""
    samples = np.pad(sound(seconds, seed), (0, PAUSE_FRAMES * FRAME_SAMPLES))
    recording = Recording()
    for start in range(0, len(samples), FRAME_SAMPLES):
        frame = np.pad(samples[start : start + FRAME_SAMPLES], (0, FRAME_SAMPLES))[:FRAME_SAMPLES]
        speech = start < round(seconds * SAMPLE_RATE)
        recording.append(Frame(frame, 1000 + (start + FRAME_SAMPLES) / SAMPLE_RATE), speech)
    return recording


def utterance_of(recording: Recording) -> Utterance:
    said = recording.utterance()
    assert said is not None
    return said


@dataclass
class Check:
    """Answers as a brain does, and compares each reply with that of `generate`."""

    brain: VoxtralBrain
    oracle: Oracle
    drafted: bool
    replies: int = 0
    kept: int = 0
    tokens: int = 0
    equal: bool = True

    def reply(self, past: Past, said: Recording | str) -> tuple[Token, ...]:
        if isinstance(said, str):
            whole: Utterance | str = said
        else:
            whole = utterance_of(self.draft(past, said) if self.drafted else said)
        prefills = self.brain.generator.calls.prefills
        reply = answered(self.brain, past, whole)
        self.kept += self.brain.generator.calls.prefills == prefills
        self.replies += 1
        self.tokens += len(ids(reply))
        wanted = self.oracle.answer(instruction(self.brain), past, whole)
        self.equal &= ids(reply) == wanted
        return reply

    def draft(self, past: Past, recording: Recording) -> Recording:
        live = Recording()
        self.brain.listen(TurnRequest(past), live)
        for frame, speech in zip(recording.frames, recording.verdicts, strict=True):
            live.append(frame, speech)
            self.brain.wake()
        computed(self.brain)
        return live


def one_turn(seconds: float) -> Callable[[Check], None]:
    return lambda check: void(check.reply((), spoken(seconds)))


def void(_: object) -> None:
    return


def thirty(check: Check) -> None:
    said = spoken(30.0)
    assert len(utterance_of(said).samples) > 30 * SAMPLE_RATE
    assert PromptClip(0, without_trailing_zeros(utterance_of(said).samples)).windows == 1
    check.reply((), said)


def three_turns(check: Check) -> None:
    past: tuple[PastTurn, ...] = ()
    for said in (spoken(2.0, 1), "and typed", spoken(3.0, 2)):
        reply = check.reply(past, said)
        whole = said if isinstance(said, str) else utterance_of(said)
        past = (*past, PastTurn(whole, None, reply))


def after_barge_in(check: Check) -> None:
    said = spoken(2.0, 3)
    reply = check.reply((), said)
    check.reply((PastTurn(utterance_of(said), None, reply[:3]),), spoken(1.0, 4))


def after_eviction(check: Check) -> None:
    history = History(LiveConfig(Config(history=HistoryConfig(turns=2, max_tokens=4000))))
    for seed in range(4):
        said = spoken(1.0, 10 + seed)
        reply = check.reply(history.past, said)
        turn = PastTurn(utterance_of(said), None, reply, number=seed)
        history.add(turn, turn.reply_text)
    assert isinstance(history.past[0].user_input, str)


def transcribed(check: Check) -> None:
    said = utterance_of(spoken(2.0, 6))
    samples = without_trailing_zeros(said.samples)
    prompt = transcription(PromptClip(0, samples))
    ours = ids(tuple(check.brain.transcribe(said, Flag())))
    wanted = check.oracle.reply(token_ids(prompt), [samples], tokens=max(len(ours), 1))
    check.replies += 1
    check.tokens += len(ours)
    check.equal &= ours == wanted[: len(ours)] and bool(ours)


CASES: dict[str, Callable[[Check], None]] = {
    "one turn of 0.3 s": one_turn(0.3),
    "2 s": one_turn(2.0),
    "5 s": one_turn(5.0),
    "29.9 s": one_turn(29.9),
    "30.0 s, and the silence after it: one window": thirty,
    "31 s": one_turn(31.0),
    "65 s": one_turn(65.0),
    "three turns, spoken and typed": three_turns,
    "after a barge-in": after_barge_in,
    "after old turns became text": after_eviction,
    "a transcription": transcribed,
}


def main() -> None:
    with tempfile.TemporaryDirectory() as position:
        directory = Path(position) / "tiny"
        tiny_voxtral.build(directory)
        oracle = Oracle(directory)
        ways = [
            ("as it comes", made(directory), False),
            ("drafted at a pause", made(directory), True),
        ]
        with pytest.MonkeyPatch.context() as patch:
            tape_instead_of_gpu(patch, Path(position))
            ways.append(("captured", made(directory, fast=True), False))
        rows = [
            {"case": name}
            | {way: outcome(name, brain, oracle, draft) for way, brain, draft in ways}
            for name in CASES
        ]
        for _, brain, _ in ways:
            brain.close()
    sys.stdout.write(table(rows) + "\n")


def outcome(name: str, brain: VoxtralBrain, oracle: Oracle, drafted: bool) -> str:
    check = Check(brain, oracle, drafted)
    CASES[name](check)
    kept = f", {check.kept} of {check.replies} drafts kept" if check.kept else ""
    return f"{'equal' if check.equal else 'DIFFERENT'}: {check.tokens} tokens{kept}"


if __name__ == "__main__":
    main()
