"""Weights of one byte: what they stand for, and who may have them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from voxtui.brains.voxtral import weights
from voxtui.brains.voxtral.brain import VoxtralBrain
from voxtui.brains.voxtral.decoder import Decoder
from voxtui.brains.voxtral.weights import Fp8Weight, load
from voxtui.dialogue.data import Token, Utterance
from voxtui.dialogue.protocols import PastTurn, TurnRequest
from voxtui.errors import ModelError
from voxtui.settings.schema import BrainConfig, Config, GenerationConfig, VoxtralBrainConfig

GPU = torch.device("cuda")


def drawn(rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def off(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


# The weights.


def test_a_product_is_off_by_no_more_than_rounding_to_three_bits_does() -> None:
    weight, x = drawn(64, 512), drawn(5, 512, 1)
    error = off(functional.linear(x, Fp8Weight(weight)), functional.linear(x, weight))  # type: ignore[arg-type]
    assert 0.01 < error < 0.04


def test_every_output_channel_has_a_scale_of_its_own() -> None:
    weight, x = drawn(64, 512), drawn(1, 512, 1)
    weight[0] *= 1e4
    found = functional.linear(x, Fp8Weight(weight))  # type: ignore[arg-type]
    assert off(found[:, 1:], functional.linear(x, weight)[:, 1:]) < 0.04


def test_e4m3_values_are_kept_exactly() -> None:
    weight = drawn(8, 32).to(torch.float8_e4m3fn).float()
    weight[:, 0] = 448.0
    assert torch.equal(functional.linear(torch.eye(32), Fp8Weight(weight)), weight.T)  # type: ignore[arg-type]


def test_a_channel_of_zeros_stays_zero() -> None:
    assert not functional.linear(drawn(1, 16), Fp8Weight(torch.zeros(4, 16))).any()  # type: ignore[arg-type]


def test_an_fp8_weight_supports_products_only() -> None:
    with pytest.raises(TypeError):
        functional.relu(Fp8Weight(drawn(4, 4)))  # type: ignore[arg-type]


# The brain.


CONFIG = Config(
    brain=BrainConfig(voxtral=VoxtralBrainConfig(quantization="fp8")),
    generation=GenerationConfig(temperature=0.0, max_new_tokens=8),
)


@pytest.fixture(autouse=True, scope="module")
def short_transcripts() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(weights, "TRANSCRIPT_TOKENS", 4)
        yield


@pytest.fixture(scope="module")
def brain(tiny_voxtral: Path) -> Iterator[VoxtralBrain]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(weights, "AGREEMENT", 0.0)  # random weights are never certain
        brain = VoxtralBrain(CONFIG, tiny_voxtral)
        brain.warm_up(lambda step, fraction: None)
    yield brain
    brain.close()


def said(seed: int) -> Utterance:
    noise = np.random.default_rng(seed).normal(0, 0.1, 16_000).astype(np.float32)
    return Utterance(noise, ((0.0, 1.0),), 1.0)


def answered(brain: VoxtralBrain, past: tuple[PastTurn, ...], words: Utterance) -> list[Token]:
    return [t for t in brain.reply(TurnRequest(past, words)) if isinstance(t, Token)]


@pytest.mark.slow
def test_only_the_weights_of_the_language_model_become_fp8(
    brain: VoxtralBrain,
) -> None:
    decoder, embedder = brain.generator.decoder, brain.generator.embedder
    for layer in decoder.layers:
        for weight in (layer.qkv, layer.out, layer.gate_up, layer.down):
            assert isinstance(weight, Fp8Weight) and weight.element_size() == 1
        assert layer.norm.dtype == torch.float32
    assert decoder.head.dtype == decoder.embedding.dtype == torch.float32
    assert embedder.encoder.dtype == torch.float32
    assert {layer.qkv[0].dtype for layer in embedder.encoder.layers} == {torch.float32}
    assert "fp8" in brain.description


def test_a_reply_over_a_kept_cache_is_that_of_a_fresh_one(brain: VoxtralBrain) -> None:
    first = tuple(answered(brain, (), said(1)))
    past = (PastTurn(said(1), None, first),)
    kept = answered(brain, past, said(2))
    brain.generator.forget()
    assert answered(brain, past, said(2)) == kept
    assert len(kept) > 2


@pytest.mark.slow
def test_the_check_agrees_with_the_same_weights_and_not_with_others(tiny_voxtral: Path) -> None:
    decoder, embedder = load(tiny_voxtral, torch.device("cpu"))
    check = weights.AccuracyCheck(decoder, embedder)
    assert check.agreement(decoder) == 1.0
    check.verify(decoder)
    decoder.layers = [replace(layer, down=layer.down * 0) for layer in decoder.layers]
    with pytest.raises(ModelError, match="% of the words of a test differ"):
        check.verify(decoder)


@pytest.mark.slow
def test_weights_that_hear_worse_are_replaced_by_the_model_s_own(
    tiny_voxtral: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoil(decoder: Decoder) -> None:
        decoder.layers = [replace(layer, down=layer.down * 0) for layer in decoder.layers]

    monkeypatch.setattr(weights, "quantise", spoil)
    told: list[str] = []
    brain = VoxtralBrain(CONFIG, tiny_voxtral, told.append)
    brain.warm_up(lambda step, fraction: None)
    assert told[0].startswith("Voxtral runs without fp8. With fp8 weights ")
    assert "fp8" not in brain.description
    assert all(layer.down.any() for layer in brain.generator.decoder.layers)
    brain.close()


# Who may have them.


def on_a_gpu(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "A Card")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)


def test_a_gpu_that_cannot_convert_them_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_a_gpu(monkeypatch, (8, 0))
    with pytest.raises(ModelError, match=r"capability 8\.9; A Card has 8\.0\.") as caught:
        weights.check_fp8(GPU)
    assert "quantization" in str(caught.value)


def test_without_triton_it_would_be_slower_and_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_gpu(monkeypatch, (9, 0))
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.setattr(weights.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="Triton"):
        weights.check_fp8(GPU)


def test_a_gpu_that_converts_them_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_gpu(monkeypatch, (8, 9))
    monkeypatch.setattr(weights.importlib.util, "find_spec", lambda name: name)
    weights.check_fp8(GPU)


@pytest.mark.slow
def test_a_conversion_that_fails_is_reported_and_the_weights_stay_unchanged(
    tiny_voxtral: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(decoder: object) -> None:
        raise ModelError("fp8 needs a GPU.")

    monkeypatch.setattr(weights, "quantise", broken)
    said: list[str] = []
    brain = VoxtralBrain(CONFIG, tiny_voxtral, said.append)
    brain.warm_up(lambda step, fraction: None)
    assert said == ["Voxtral runs without fp8. fp8 needs a GPU."]
    assert "fp8" not in brain.description
    brain.close()
