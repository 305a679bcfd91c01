"""Tests that need a real GPU. Needs torch, transformers, numpy and pytest, nothing else:

python -m pytest -c /dev/null --noconftest tests/brains/voxtral/test_gpu.py

Captures that fail come last: one leaves CUDA's own generator out of use until the process ends.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from benchmarks.voxtral.measure import SAFE, VARIANTS, Bench, Clock
from benchmarks.voxtral.random_weights import random_model
from benchmarks.voxtral.report import NOT_MEASURED
from tests.brains.voxtral.tiny_voxtral import model
from voxtui.brains.voxtral.decoder import Decoder
from voxtui.brains.voxtral.fast_path import use_kernels
from voxtui.brains.voxtral.generate import NotNumbers, ReplyGenerator, Sampler
from voxtui.brains.voxtral.graphs import CudaRecorder
from voxtui.brains.voxtral.prompt import (
    EOS,
    WINDOW_SAMPLES,
    PromptClip,
    PromptIds,
    PromptTurn,
    chat,
    token_ids,
)
from voxtui.brains.voxtral.weights import Fp8Weight, parts, quantise

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]

DEVICE = torch.device("cuda")
TOKENS = 12
CAPACITY = 2048
SAMPLING = {
    "temperature": 1.0, "top_p": 0.9, "top_k": 30, "repetition_penalty": 1.2,
    "min_new_tokens": 6, "seed": 3,
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def exact():
    """In whole float32: convolutions are rounded to ten bits otherwise, each side's in its way."""
    torch.backends.cudnn.allow_tf32 = False


@pytest.fixture(scope="module")
def weights():
    return model().to(DEVICE)


def loop_of(weights, captured: bool, **sampling: float) -> ReplyGenerator:
    decoder, embedder = parts(copy.deepcopy(weights))
    sampler = Sampler(decoder.head.shape[0], EOS, DEVICE, **sampling)  # type: ignore[arg-type]
    loop = ReplyGenerator(decoder, embedder, sampler, CAPACITY)
    if captured:
        assert [*loop.capture(CudaRecorder())][-1] == 1.0
    return loop


@pytest.fixture(scope="module")
def captured(weights) -> ReplyGenerator:
    return loop_of(weights, captured=True)


@pytest.fixture(scope="module")
def plain(weights) -> ReplyGenerator:
    return loop_of(weights, captured=False)


def clip(number: int, seconds: float) -> PromptClip:
    random = np.random.default_rng(number)
    return PromptClip(number, random.normal(0, 0.1, round(seconds * 16_000)).astype(np.float32))


def encode(text: str) -> list[int]:
    return [1000 + ord(letter) for letter in text]


def clips_in(past: list[PromptTurn], said: PromptClip) -> list[PromptClip]:
    return [*(e.user_input for e in past if isinstance(e.user_input, PromptClip)), said]


def answered(
    loop: ReplyGenerator, past: list[PromptTurn], said: PromptClip, tokens: int = TOKENS
) -> list[int]:
    prompt = chat(encode, "Be brief.", past, said)
    return [t for t in loop.reply(prompt, clips_in(past, said), tokens) if t is not None]


def generated(weights, past: list[PromptTurn], said: PromptClip) -> list[int]:
    from transformers import WhisperFeatureExtractor

    prompt: PromptIds = chat(encode, "Be brief.", past, said)
    extractor = WhisperFeatureExtractor(feature_size=128)
    features = []
    for heard in clips_in(past, said):
        filled = np.pad(heard.samples, (0, -len(heard.samples) % WINDOW_SAMPLES))
        found = extractor(
            filled, sampling_rate=16_000, padding=False, truncation=False, return_tensors="pt"
        ).input_features
        features.append(found.reshape(128, -1, 3000).transpose(0, 1))
    ids = torch.tensor([token_ids(prompt)], device=DEVICE)
    with torch.inference_mode():
        whole = weights.generate(
            ids, attention_mask=torch.ones_like(ids), input_features=torch.cat(features).to(DEVICE),
            do_sample=False, max_new_tokens=TOKENS, pad_token_id=11,
        )  # fmt: skip
    said_ids = whole[0, ids.shape[1] :].tolist()
    return said_ids[: said_ids.index(EOS)] if EOS in said_ids else said_ids


@pytest.mark.parametrize("seconds", [0.3, 5.0, 30.0, 31.0])
def test_one_turn_equals_generate(weights, captured, plain, seconds) -> None:
    said = clip(1, seconds)
    wanted = generated(weights, [], said)
    for loop in (captured, plain):
        loop.forget()
        assert answered(loop, [], said) == wanted
    assert len(wanted) > 2


def test_three_turns_and_one_after_a_barge_in_equal_generate(weights, captured) -> None:
    past: list[PromptTurn] = []
    for number in range(10, 13):
        said = clip(number, 2.0)
        reply = answered(captured, past, said)
        assert reply == generated(weights, past, said)
        past.append(PromptTurn(said, reply))
    past[-1] = PromptTurn(past[-1].user_input, past[-1].reply[:3])
    said = clip(13, 1.0)
    assert answered(captured, past, said) == generated(weights, past, said)


def test_sampled_tokens_are_those_without_graphs(weights) -> None:
    one, other = (loop_of(weights, on, **SAMPLING) for on in (True, False))
    said = clip(20, 1.0)
    replies = [answered(loop, [], said) for loop in (one, other, one)]
    assert replies[0] == replies[1] == replies[2]


def test_nothing_waits_for_the_device_but_the_reading_of_a_token(weights, captured) -> None:
    for number, loop in enumerate((captured, loop_of(weights, captured=False, **SAMPLING))):
        answered(loop, [], clip(30 + number, 1.0))
        torch.cuda.set_sync_debug_mode("error")
        try:
            assert answered(loop, [], clip(32 + number, 1.0))
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_turns_leave_no_memory_behind(captured) -> None:
    def turn(number: int) -> int:
        answered(captured, [], clip(number, 1.0))
        return torch.cuda.memory_allocated()

    first = [turn(40 + number) for number in range(3)][-1]
    assert [turn(50 + number) for number in range(20)][-1] == first


def test_after_logits_that_were_not_numbers_the_next_reply_is_right(captured, plain) -> None:
    captured.cache.keys.fill_(torch.nan)
    said = clip(60, 1.0)
    with pytest.raises(NotNumbers):
        answered(captured, [], said)
    captured.forget()
    assert answered(captured, [], said) == answered(plain, [], said)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_gives_the_same_reply_each_time(weights, dtype) -> None:
    loop = loop_of(copy.deepcopy(weights).to(dtype), captured=True)
    first = answered(loop, [], clip(80, 3.0))
    loop.forget()
    assert answered(loop, [], clip(80, 3.0)) == first
    assert len(first) > 2


# Kernels and weights of one byte.


@pytest.fixture(scope="module")
def true_shape() -> Decoder:
    """One layer of the real width."""
    from transformers import LlamaConfig, VoxtralConfig
    from transformers.models.voxtral.configuration_voxtral import VoxtralEncoderConfig

    text = VoxtralConfig().text_config.to_dict() | {"num_hidden_layers": 1}
    config = VoxtralConfig(
        audio_token_id=24, text_config=LlamaConfig(**text),
        audio_config=VoxtralEncoderConfig(num_hidden_layers=1),
    )  # fmt: skip
    return parts(random_model(config, DEVICE, torch.bfloat16))[0]


@pytest.mark.parametrize("fp8", [False, True])
def test_kernels_equal_torch_at_the_real_width(true_shape, fp8) -> None:
    decoder = copy.copy(true_shape)
    decoder.layers = decoder.layers[:]
    if fp8:
        quantise(decoder)
    use_kernels(decoder)
    x = torch.randn(decoder.embedding.shape[1]).to(DEVICE, torch.bfloat16)
    found = decoder.logits(x)
    decoder.decode_step = None
    wanted = decoder.logits(x)
    assert (found - wanted).norm() < 1e-2 * wanted.norm()


@pytest.mark.parametrize(
    ("rows", "columns"), [(6144, 3072), (3072, 4096), (16_384, 3072), (3072, 8192)]
)
def test_the_product_of_fp8_weights_equals_that_of_the_dequantised_weights(rows, columns) -> None:
    from voxtui.brains.voxtral.kernels import product

    weight = Fp8Weight(torch.randn(rows, columns).to(DEVICE))
    x = torch.randn(1, columns).to(DEVICE, torch.bfloat16)
    wanted = torch.nn.functional.linear(x.double(), weight)
    found = product(x, weight.values, weight.scales)
    assert (found - wanted).norm() < 1e-2 * wanted.norm()


@pytest.mark.parametrize("position", [0, 1, 511, 512, 4095, 20_479])
def test_attention_by_kernels_is_that_of_torch_however_full_the_cache_is(
    true_shape, position
) -> None:
    from voxtui.brains.voxtral.kernels import attend

    heads, size = true_shape.heads, true_shape.head_size
    kv = torch.randn(2 * true_shape.kv_heads, 20_480, size).to(DEVICE, torch.bfloat16)
    kv[:, position:] = torch.nan  # what was never written is never looked at
    other = kv.clone()
    qkv = torch.randn(1, (heads + 2 * true_shape.kv_heads) * size).to(DEVICE, torch.bfloat16)
    at = torch.tensor([position], device=DEVICE)
    with torch.inference_mode():
        cos, sin = true_shape.cos[at][:, None], true_shape.sin[at][:, None]
        found = attend(qkv, at, true_shape.cos, true_shape.sin, kv, heads)
        wanted = true_shape.attend(qkv.clone(), at, cos, sin, other, position + 1, None)
    assert (found - wanted).norm() < 1e-2 * wanted.norm()
    written = kv[:, position].float()
    assert (written - other[:, position].float()).norm() < 1e-2 * written.norm()


@pytest.mark.parametrize("fp8", [False, True])
@pytest.mark.parametrize("kernels", [False, True])
def test_captured_steps_of_every_kind_equal_the_plain_loop(weights, fp8, kernels) -> None:
    def made(kernels: bool, captured: bool) -> ReplyGenerator:
        decoder, embedder = parts(copy.deepcopy(weights))
        if fp8:
            quantise(decoder)
        if kernels:
            use_kernels(decoder)
        loop = ReplyGenerator(
            decoder, embedder, Sampler(decoder.head.shape[0], EOS, DEVICE), CAPACITY
        )
        if captured:
            assert [*loop.capture(CudaRecorder())][-1] == 1.0
        return loop

    said = clip(90, 2.0)
    wanted = answered(made(False, captured=False), [], said)
    assert answered(made(kernels, captured=True), [], said) == wanted
    assert answered(made(kernels, captured=False), [], said) == wanted


def test_every_kind_of_our_loop_is_measured() -> None:
    bench = Bench(DEVICE, tiny=True, repeats=1, clock=Clock(600))
    rows = [*bench.kinds(SAFE, []), *bench.kinds(VARIANTS, []), *bench.speculation()]
    rows += bench.step_parts()
    # An older torch may have no attention for lengths on the device.
    assert not [row for row in rows if NOT_MEASURED in row and row.get("way") != "torch, varlen"]
    assert list(bench.ours) == [kind.name for kind in (*SAFE, *VARIANTS)]


# Captures that fail, last.


def test_work_that_asks_the_device_for_a_number_cannot_be_captured_and_the_next_can() -> None:
    recorder = CudaRecorder()
    numbers = torch.ones(3, device=DEVICE)
    with pytest.raises(RuntimeError, match="captur"):
        recorder(lambda: numbers.fill_(int(numbers.sum())))
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    torch.cuda.empty_cache()  # which torch refuses while it believes that a capture goes on
    replay = CudaRecorder()(lambda: numbers.mul_(2))
    numbers.fill_(1)
    replay()
    assert numbers.tolist() == [2, 2, 2]


def test_a_capture_that_fails_half_way_leaves_the_plain_loop(weights, plain) -> None:
    loop = loop_of(weights, captured=False)
    recorder, done = CudaRecorder(), 0

    def record(work):
        nonlocal done
        done += 1
        if done == 5:
            return recorder(lambda: (work(), int(loop.token)))
        return recorder(work)

    with pytest.raises(RuntimeError):
        for _ in loop.capture(record):
            pass
    loop.graphs.replays.clear()
    loop.embedder.graphs.replays.clear()
    loop.forget()
    said = clip(70, 1.0)
    assert answered(loop, [], said) == answered(plain, [], said)
