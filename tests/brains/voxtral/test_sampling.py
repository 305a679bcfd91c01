"""Sampling is that of transformers: the same logits processors, the same draw."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from voxtui.brains.voxtral.generate import BROKEN, Sampler

VOCABULARY, END = 97, 2
CPU = torch.device("cpu")


def theirs(prompt: list[int], options: dict[str, float]) -> LogitsProcessorList:
    """Build the processors of `generate` for these options, in its order."""
    found = LogitsProcessorList()
    if options["repetition_penalty"] != 1.0:
        found.append(RepetitionPenaltyLogitsProcessor(options["repetition_penalty"]))
    found.append(
        MinNewTokensLengthLogitsProcessor(len(prompt), int(options["min_new_tokens"]), END)
    )
    found.append(TemperatureLogitsWarper(options["temperature"]))
    if options["top_k"]:
        found.append(TopKLogitsWarper(int(options["top_k"])))
    if options["top_p"] < 1.0:
        found.append(TopPLogitsWarper(options["top_p"]))
    return found


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(
    options=st.fixed_dictionaries(
        {
            "temperature": st.sampled_from([0.05, 0.2, 0.7, 1.5]),
            "top_p": st.sampled_from([0.1, 0.5, 0.9, 0.95, 1.0]),
            "top_k": st.sampled_from([0, 1, 5, 30, 500]),
            "repetition_penalty": st.sampled_from([0.8, 1.0, 1.2]),
            "min_new_tokens": st.integers(0, 4),
        }
    ),
    seed=st.integers(0, 10_000),
)
def test_the_chances_and_the_draw_are_those_of_transformers(options, seed):
    random = torch.Generator().manual_seed(seed)
    prompt = torch.randint(VOCABULARY, (7,), generator=random).tolist()
    sampler = Sampler(VOCABULARY, END, CPU, seed=seed, **options)
    sampler.start(prompt)
    processors = theirs(prompt, options)
    draw = torch.Generator().manual_seed(seed + len(prompt))
    said = list(prompt)
    for _ in range(6):
        logits = torch.randn(VOCABULARY, generator=random) * 4
        wanted = processors(torch.tensor([said]), logits[None].clone())
        assert torch.equal(sampler.process(logits), wanted[0])
        sampler.draw()
        token = int(sampler.pick(logits))
        assert token == int(torch.multinomial(wanted.softmax(-1), 1, generator=draw))
        said.append(token)


def test_without_temperature_the_likeliest_token_is_picked():
    sampler = Sampler(VOCABULARY, END, CPU)
    logits = torch.randn(VOCABULARY)
    assert int(sampler.pick(logits)) == int(logits.argmax())


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_a_logit_that_is_not_a_number_is_reported(wrong):
    sampler = Sampler(VOCABULARY, END, CPU)
    logits = torch.randn(VOCABULARY)
    logits[5] = wrong
    assert int(sampler.pick(logits)) == BROKEN
