"""Turns of a tiny Voxtral, and what transformers makes of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import soundfile
import torch

from tests.brains.conftest import QUESTIONS
from tests.fakes import Flag
from voxtui.audio.resampling import resample
from voxtui.brains.voxtral.brain import VoxtralBrain
from voxtui.brains.voxtral.model_thread import ModelWork
from voxtui.brains.voxtral.prompt import (
    EOS,
    WINDOW_SAMPLES,
    PromptClip,
    PromptTurn,
    chat,
    token_ids,
    without_trailing_zeros,
)
from voxtui.dialogue.data import SAMPLE_RATE, Token, Utterance
from voxtui.dialogue.protocols import DEFAULT_OPTIONS, Past, ReplyOptions, TurnRequest
from voxtui.dialogue.timestamps import Timestamps
from voxtui.settings.schema import Config, GenerationConfig

TOKENS = 12


class Oracle:
    """transformers' own classes on the same checkpoint."""

    def __init__(self, directory: Path) -> None:
        from transformers import AutoProcessor, VoxtralForConditionalGeneration

        self.processor = AutoProcessor.from_pretrained(directory)
        self.model = VoxtralForConditionalGeneration.from_pretrained(directory).eval()
        self.model.generation_config.max_length = None

    def features(self, samples: np.ndarray) -> torch.Tensor:
        """(windows, 128, 3000)"""
        extractor = self.processor.feature_extractor
        filled = np.pad(samples, (0, -len(samples) % WINDOW_SAMPLES))
        found = extractor(
            filled, sampling_rate=SAMPLE_RATE, padding=False, truncation=False, return_tensors="pt"
        ).input_features
        return found.reshape(128, -1, 3000).transpose(0, 1)

    def reply(self, ids: list[int], clips: Sequence[np.ndarray], tokens: int = TOKENS) -> list[int]:
        features = torch.cat([self.features(c) for c in clips]) if clips else None
        prompt = torch.tensor([ids])
        with torch.inference_mode():
            whole = self.model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                **({"input_features": features} if clips else {}),
                do_sample=False,
                max_new_tokens=tokens,
                pad_token_id=11,
            )
        found = whole[0, len(ids) :].tolist()
        return found[: found.index(EOS)] if EOS in found else found

    def answer(
        self, instruction: str, past: Past, said: Utterance | str, clock: str = ""
    ) -> list[int]:
        """Return the reply of `generate` over the same history, computed from scratch."""
        clips: list[np.ndarray] = []
        numbers = itertools.count()

        def shown(turn_said: Utterance | str) -> PromptClip | str:
            if isinstance(turn_said, str):
                return turn_said
            clips.append(without_trailing_zeros(turn_said.samples))
            return PromptClip(next(numbers), clips[-1])

        encode = self.processor.tokenizer.tokenizer.instruct_tokenizer.tokenizer.encode
        exchanges = [
            PromptTurn(
                shown(turn.user_input), [t.id for t in turn.reply if t.id is not None], turn.clock
            )
            for turn in past
        ]
        now = shown(said)
        prompt = chat(
            lambda text: encode(text, bos=False, eos=False), instruction, exchanges, now, clock
        )
        return self.reply(token_ids(prompt), clips)


def made(directory: Path, fast: bool = False, **generation: object) -> VoxtralBrain:
    options = {"temperature": 0.0, "max_new_tokens": TOKENS} | generation
    config = Config(generation=GenerationConfig(**options))  # type: ignore[arg-type]
    brain = VoxtralBrain(config, directory)
    brain.warm_up(lambda step, fraction: None)
    assert bool(brain.fast_path) is fast
    brain.took = 0.0  # however busy this machine is, it works ahead
    return brain


def sound(seconds: float, seed: int = 0) -> np.ndarray:
    """Speech, over and over, at a loudness of its own."""
    clip, rate = soundfile.read(QUESTIONS / "romeo-and-juliet.flac", dtype="float32")
    clip = resample(clip, rate, SAMPLE_RATE)
    count = round(seconds * SAMPLE_RATE)
    rng = np.random.default_rng(seed)
    rolled = np.roll(np.resize(clip, count), int(rng.integers(count)))
    return (rolled * rng.uniform(0.5, 1.0)).astype(np.float32)


def utterance(seconds: float, seed: int = 0, trailing: int = 3200) -> Utterance:
    samples = np.concatenate([sound(seconds, seed), np.zeros(trailing, np.float32)])
    return Utterance(samples, ((0.0, seconds),), seconds)


def answered(
    brain: VoxtralBrain,
    past: Past,
    said: Utterance | str,
    timestamps: Timestamps | None = None,
    options: ReplyOptions = DEFAULT_OPTIONS,
) -> tuple[Token, ...]:
    items = brain.reply(TurnRequest(past, said, timestamps or Timestamps(), Flag(), options))
    return tuple(item for item in items if isinstance(item, Token))


def computed(brain: VoxtralBrain) -> ModelWork:
    """Wait until what is computed ahead is done."""
    newest = brain.thread.newest
    assert newest is not None
    while newest.has_work:
        Flag().wait(0.01)
    assert newest.error is None
    return newest


def ids(tokens: Sequence[Token]) -> list[int]:
    return [token.id for token in tokens if token.id is not None]


def instruction(brain: VoxtralBrain) -> str:
    return brain.instruction
