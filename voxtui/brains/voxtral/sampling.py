"""Token sampling on the device, equal to the logits processors of transformers."""

# torch and transformers are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import torch
from torch import Tensor

from voxtui.brains.voxtral.decoder import on_device

BROKEN = -1
"""Token id that stands for logits that are not numbers."""


class Sampler:
    """Samples the tokens of one reply. All state stays in fixed tensors for captured steps.

    Order and arithmetic are those of transformers' `generate`: repetition penalty, minimum length,
    temperature, top_k, top_p; then a race of exponentials, which is what `torch.multinomial` does.
    """

    def __init__(
        self,
        vocabulary: int,
        end: int,
        device: torch.device,
        *,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        repetition_penalty: float = 1.0,
        min_new_tokens: int = 0,
        seed: int = 0,
    ) -> None:
        self.generator = torch.Generator(device)
        self.temperature = temperature
        self.top_p = top_p
        self.top_k = min(top_k, vocabulary)
        self.repetition_penalty = repetition_penalty
        self._least = min_new_tokens
        self._seed = seed
        self._seen = torch.zeros(vocabulary, dtype=torch.bool, device=device)
        self._count = torch.zeros((), dtype=torch.long, device=device)
        self._end = torch.zeros(vocabulary, dtype=torch.bool, device=device)
        self._end[end] = True
        self._race = torch.ones(vocabulary, device=device)
        self.logits = torch.zeros(vocabulary, device=device)
        """the logits of the latest pick, as the model computed them"""
        self._broken = torch.full((1,), BROKEN, device=device)
        self.takes_likeliest = False
        """take the likeliest token instead of drawing one, also in captured steps"""

    def start(self, prompt: list[int]) -> None:
        """Begin a reply to these token ids. The same prompt gives the same choices."""
        self._count.zero_()
        if self.temperature:
            self.generator.manual_seed(self._seed + len(prompt))
        if self.repetition_penalty != 1.0:
            self._seen.zero_()
            self._seen.index_fill_(0, on_device(prompt, self._seen.device), True)

    def draw(self) -> None:
        """Draw for the next pick: separately, because a captured step cannot hold a generator."""
        if self.takes_likeliest:
            self._race.fill_(1.0)
        elif self.temperature:
            self._race.exponential_(1.0, generator=self.generator)

    def pick(self, logits: Tensor) -> Tensor:
        """Choose a token id, shape (1,), from (vocabulary,) logits. BROKEN if one is no number."""
        self.logits.copy_(logits)  # to float32
        sound = self.logits.isfinite().all()
        token = self._choose(self.process(self.logits)).view(1)
        self._count += 1
        if self.repetition_penalty != 1.0:
            self._seen.index_fill_(0, token, True)
        return torch.where(sound, token, self._broken)

    def process(self, logits: Tensor) -> Tensor:
        if self.repetition_penalty != 1.0:
            penalised = torch.where(
                logits < 0, logits * self.repetition_penalty, logits / self.repetition_penalty
            )
            logits = torch.where(self._seen, penalised, logits)
        if self._least:
            too_early = self._end & (self._count < self._least)
            logits = logits.masked_fill(too_early, -torch.inf)
        if not self.temperature:
            return logits
        logits = logits / self.temperature
        if self.top_k:
            floor = logits.topk(self.top_k).values[-1]
            logits = logits.masked_fill(logits < floor, -torch.inf)
        if self.top_p < 1.0:
            ordered, positions = logits.sort()
            unlikely = ordered.softmax(-1).cumsum(-1) <= 1 - self.top_p
            unlikely[-1:].fill_(False)  # `= False` would copy it from the host, as no graph can
            removed = torch.zeros_like(unlikely).scatter(0, positions, unlikely)
            logits = logits.masked_fill(removed, -torch.inf)
        return logits

    def _choose(self, logits: Tensor) -> Tensor:
        if not self.temperature:
            return logits.argmax()
        return (logits.softmax(-1) / self._race).argmax()
