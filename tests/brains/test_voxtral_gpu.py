"""Captured graphs on a real GPU. Needs torch, transformers, numpy and pytest, nothing else:

python -m pytest -c /dev/null --noconftest tests/brains/test_voxtral_gpu.py
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from tests.brains.tiny_voxtral import model
from voxtui.brains.voxtral.graphs import CudaRecorder
from voxtui.brains.voxtral.loop import Loop, NotNumbers
from voxtui.brains.voxtral.prompt import (
    EOS,
    WINDOW_SAMPLES,
    Clip,
    Elements,
    Exchange,
    chat,
    token_ids,
)
from voxtui.brains.voxtral.sampling import Sampler
from voxtui.brains.voxtral.weights import parts

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]

DEVICE = torch.device("cuda")
TOKENS = 12
CAPACITY = 2048


@pytest.fixture(scope="module")
def weights():
    return model().to(DEVICE)


def loop_of(weights, captured: bool, **sampling: float) -> Loop:
    decoder, ears = parts(copy.deepcopy(weights))
    sampler = Sampler(decoder.head.shape[0], EOS, DEVICE, **sampling)  # type: ignore[arg-type]
    loop = Loop(decoder, ears, sampler, CAPACITY)
    if captured:
        assert [*loop.capture(CudaRecorder())][-1] == 1.0
    return loop


@pytest.fixture(scope="module")
def captured(weights) -> Loop:
    return loop_of(weights, captured=True)


@pytest.fixture(scope="module")
def plain(weights) -> Loop:
    return loop_of(weights, captured=False)


def clip(number: int, seconds: float) -> Clip:
    random = np.random.default_rng(number)
    return Clip(number, random.normal(0, 0.1, round(seconds * 16_000)).astype(np.float32))


def encode(text: str) -> list[int]:
    return [1000 + ord(letter) for letter in text]


def clips_in(past: list[Exchange], said: Clip) -> list[Clip]:
    return [*(e.said for e in past if isinstance(e.said, Clip)), said]


def answered(loop: Loop, past: list[Exchange], said: Clip, tokens: int = TOKENS) -> list[int]:
    prompt = chat(encode, "Be brief.", past, said)
    return [t for t in loop.reply(prompt, clips_in(past, said), tokens) if t is not None]


def generated(weights, past: list[Exchange], said: Clip) -> list[int]:
    from transformers import WhisperFeatureExtractor

    prompt: Elements = chat(encode, "Be brief.", past, said)
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
def test_one_turn_is_what_generate_says(weights, captured, plain, seconds) -> None:
    said = clip(1, seconds)
    wanted = generated(weights, [], said)
    for loop in (captured, plain):
        loop.ears.forget_all_but(set())
        loop.forget()
        assert answered(loop, [], said) == wanted
    assert len(wanted) > 2


def test_three_turns_and_one_after_a_barge_in_are_what_generate_says(weights, captured) -> None:
    past: list[Exchange] = []
    for number in range(10, 13):
        said = clip(number, 2.0)
        reply = answered(captured, past, said)
        assert reply == generated(weights, past, said)
        past.append(Exchange(said, reply))
    past[-1] = Exchange(past[-1].said, past[-1].reply[:3])
    said = clip(13, 1.0)
    assert answered(captured, past, said) == generated(weights, past, said)


def test_sampled_tokens_are_those_without_graphs(weights) -> None:
    sampling = {
        "temperature": 1.0, "top_p": 0.9, "top_k": 30, "repetition_penalty": 1.2,
        "min_new_tokens": 6, "seed": 3,
    }  # fmt: skip
    one, other = (loop_of(weights, on, **sampling) for on in (True, False))
    said = clip(20, 1.0)
    replies = [answered(loop, [], said) for loop in (one, other, one)]
    assert replies[0] == replies[1] == replies[2]


def test_nothing_waits_for_the_device_but_the_reading_of_a_token(captured) -> None:
    answered(captured, [], clip(30, 1.0))
    torch.cuda.set_sync_debug_mode("error")
    try:
        assert answered(captured, [], clip(31, 1.0))
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_turns_leave_no_memory_behind(captured) -> None:
    def turn(number: int) -> int:
        answered(captured, [], clip(number, 1.0))
        captured.ears.forget_all_but(set())
        return torch.cuda.memory_allocated()

    first = [turn(40 + number) for number in range(3)][-1]
    assert [turn(50 + number) for number in range(20)][-1] == first


def test_after_an_answer_that_was_no_number_the_next_is_sound(captured, plain) -> None:
    captured.cache.keys.fill_(torch.nan)
    said = clip(60, 1.0)
    with pytest.raises(NotNumbers):
        answered(captured, [], said)
    captured.forget()
    assert answered(captured, [], said) == answered(plain, [], said)


def test_work_that_asks_the_device_for_a_number_cannot_be_captured_and_the_next_can() -> None:
    recorder = CudaRecorder()
    numbers = torch.ones(3, device=DEVICE)
    with pytest.raises(RuntimeError):
        recorder(lambda: numbers.fill_(int(numbers.sum())))
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
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
            return recorder(lambda: (work(), int(loop._token)))
        return recorder(work)

    with pytest.raises(RuntimeError):
        for _ in loop.capture(record):
            pass
    loop.release()
    said = clip(70, 1.0)
    assert answered(loop, [], said) == answered(plain, [], said)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_says_the_same_each_time(weights, dtype) -> None:
    loop = loop_of(copy.deepcopy(weights).to(dtype), captured=True)
    said = clip(80, 3.0)
    first = answered(loop, [], said)
    loop.ears.forget_all_but(set())
    loop.forget()
    assert answered(loop, [], said) == first
    assert len(first) > 2
