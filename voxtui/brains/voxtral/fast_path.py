"""The fast path: captured CUDA graphs with our kernels, tried at warm-up beside the plain path.

It answers only if it gives the tokens of the plain path on a few prompts, and is faster. A marker
file is written before the attempt and removed after it. If the attempt crashes the process, the
marker stays, and the next start uses the plain path.
"""

# torch is typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import copy
import importlib.util
import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from threading import Event as Flag
from typing import TYPE_CHECKING

import torch

from voxtui.brains.voxtral import graphs
from voxtui.brains.voxtral.audio_encoder import AudioEmbedder
from voxtui.brains.voxtral.cuda_errors import TRY_AGAIN, is_full, marker, write_marker
from voxtui.brains.voxtral.decoder import Decoder
from voxtui.brains.voxtral.generate import NotNumbers, ReplyGenerator
from voxtui.brains.voxtral.model_thread import ModelThread, ModelWork
from voxtui.brains.voxtral.prompt import EOS, PromptClip, PromptIds, PromptTurn, chat
from voxtui.brains.voxtral.weights import packaged_clips, reply_generator
from voxtui.errors import ModelError, RestartNeeded, first_line
from voxtui.models.cuda import why_not_compiled
from voxtui.settings.paths import user_folders

if TYPE_CHECKING:
    # The benchmark of random weights imports this module without msgspec.
    from voxtui.settings.schema import Sampling

CAPTURED_CAPACITY = 8192
"""Tokens of the fast path's cache (1 GB), which cannot grow, because graphs use its address."""

FREE_BYTES = 1.6e9
"""GPU memory that must be free: 1 GB for that cache, the rest for the graphs and a turn's work."""

CAPABILITY = (8, 0)
"""Capability of the first GPUs with bfloat16 products: Ampere."""

HANG_SECONDS = 120.0
"""Time without progress after which an attempt counts as hung. Compiling the kernels takes less."""

POLL_SECONDS = 0.1

TOKENS = 48
"""Number of compared tokens of each reply."""

TIMED_STEPS, TIMINGS = 32, 3

TIE = 4.0
"""Maximum difference between the logits of two paths whose tokens differ only by rounding, as a
multiple of the largest difference between the plain path's own two ways to compute a token."""

Prompt = tuple[PromptIds, list[PromptClip]]


@dataclass(frozen=True, slots=True)
class FastPath:
    generator: ReplyGenerator
    plain_ms: float
    """the time of a token on the plain path"""
    fast_ms: float


def choose(
    thread: ModelThread, plain: ReplyGenerator, sampling: Sampling, prompts: Sequence[Prompt],
    stopping: Flag,
) -> FastPath | None:  # fmt: skip
    """Try the fast path on the model's thread, and return it; None once `stopping` is set.

    Raises ModelError with the reason if the plain path must answer. Raises RestartNeeded if the
    attempt hangs or leaves the device unusable; the marker then stays.
    """
    if marker().exists():
        raise ModelError("The last attempt at it did not end.", TRY_AGAIN)
    progress_at = time.monotonic()
    found: FastPath | None = None
    lost: Exception | None = None

    def work() -> Generator[None, None, None]:
        nonlocal found, lost, progress_at
        write_marker()
        try:
            with closing(attempt(plain, sampling, prompts)) as steps:
                while True:
                    progress_at = time.monotonic()
                    next(steps)
                    yield
        except StopIteration as end:
            found = end.value
        finally:
            lost = device_error(plain)
            if lost is None:
                marker().unlink(missing_ok=True)

    request = thread.request(ModelWork(work, stopping))
    while not request.wait(POLL_SECONDS):
        if stopping.is_set():
            marker().unlink(missing_ok=True)  # here, because the process may end before the thread
            return None
        if time.monotonic() - progress_at > HANG_SECONDS:
            thread.abandon()
            raise RestartNeeded(f"Voxtral's fast path hung for {HANG_SECONDS:.0f} s.")
    if lost is not None:
        thread.lost = True
        why = first_line(lost)
        raise RestartNeeded(f"Voxtral's fast path left the GPU unusable: {why}.") from lost
    if request.error is not None:
        raise _reason(request.error) from request.error
    return found


def device_error(plain: ReplyGenerator) -> Exception | None:
    """Empty the cache of `plain`, and return the error if the device fails at that."""
    try:
        plain.forget()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    except RuntimeError as error:
        return error
    return None


def _reason(error: BaseException) -> BaseException:
    match error:
        case ModelError():
            return error
        case NotNumbers():
            return ModelError("Its output is not a number.")
        case Exception() if is_full(error):
            return ModelError("The GPU has no memory for it.")
        case Exception():
            return ModelError(f"{why_not_compiled(error)}.")
        case _:
            return error


def attempt(
    plain: ReplyGenerator, sampling: Sampling, prompts: Sequence[Prompt]
) -> Generator[None, None, FastPath]:
    """Capture the fast path and compare it with `plain`. Yields between the steps.

    Raises ModelError if a token differs or if it is not faster, and any error of the device.
    """
    fast = yield from _captured(plain, sampling)
    loops, queue_ahead = (plain, fast), plain.queue_ahead
    plain.forget()  # its clips may have the numbers of the ones here
    for loop in loops:
        loop.sampler.takes_likeliest, loop.queue_ahead = True, False
    try:
        yield from compare(plain, fast, prompts)
        times: list[float] = []
        for loop in loops:
            times.append(step_seconds(loop, prompts[0]) * 1e3)
            yield
    finally:
        for loop in loops:
            loop.sampler.takes_likeliest, loop.queue_ahead = False, queue_ahead
    plain_ms, fast_ms = times
    if fast_ms >= plain_ms:
        raise ModelError(f"It is not faster: {fast_ms:.1f} ms a token instead of {plain_ms:.1f}.")
    fast.forget()
    return FastPath(fast, plain_ms, fast_ms)


def _captured(plain: ReplyGenerator, sampling: Sampling) -> Generator[None, None, ReplyGenerator]:
    """Capture all work of a turn on the weights of `plain`, with buffers of its own."""
    decoder = copy.copy(plain.decoder)
    check_memory(decoder.embedding.device)
    use_kernels(decoder)
    embedder = AudioEmbedder(plain.embedder.encoder)
    fast = reply_generator(decoder, embedder, sampling, CAPTURED_CAPACITY)
    for _ in fast.capture(graphs.CudaRecorder()):
        yield
    return fast


def use_kernels(decoder: Decoder) -> None:
    """Use our kernels in each decode step; they are compiled at first use. Raises ModelError."""
    device = decoder.embedding.device
    if device.type != "cuda":
        raise ModelError("There is no GPU for kernels.")
    if torch.cuda.get_device_capability(device) < CAPABILITY:
        name, needed = torch.cuda.get_device_name(device), ".".join(map(str, CAPABILITY))
        raise ModelError(f"The kernels need a GPU of compute capability {needed}, not {name}.")
    if importlib.util.find_spec("triton") is None:
        raise ModelError("The kernels need Triton, which is not installed.")
    set_kernel_cache()
    from voxtui.brains.voxtral.kernels import KernelStep

    decoder.decode_step = KernelStep()


def set_kernel_cache() -> None:
    """Store Triton's compiled kernels in the user's cache folder, unless another one is set."""
    if "TRITON_CACHE_DIR" not in os.environ:
        os.environ["TRITON_CACHE_DIR"] = str(user_folders().user_cache_path / "triton")


def check_memory(device: torch.device) -> None:
    if device.type != "cuda":
        return
    free, _ = torch.cuda.mem_get_info(device)
    if free < FREE_BYTES:
        raise ModelError(
            f"It needs {FREE_BYTES / 1e9:g} GB of GPU memory, and {free / 1e9:.1f} GB are free."
        )


def rehearsal_prompts(encode: Callable[[str], list[int]], instruction: str) -> list[Prompt]:
    """Return a spoken turn, a typed one, and conversations in which both stay."""
    first, second, third, *_ = packaged_clips()
    typed = "Tell me in a few sentences why the sky is blue."
    reply = encode("It is blue because the air scatters blue light more than red light.")
    spoken = [PromptTurn(first, reply), PromptTurn(typed, reply), PromptTurn(second, reply)]
    return [
        (chat(encode, instruction, past, now), clips)
        for past, now, clips in (
            ([], first, [first]),
            ([], typed, []),
            (spoken[:1], second, [first, second]),
            (spoken, third, [first, second, third]),
        )
    ]


def compare(
    plain: ReplyGenerator, fast: ReplyGenerator, prompts: Sequence[Prompt]
) -> Generator[None, None, None]:
    """Compare the likeliest tokens of both paths. Yields after each.

    A difference within the rounding of the plain path (see TIE) is accepted and ends its reply.
    Raises ModelError for any other difference.
    """
    rounding = 0.0
    apart: list[tuple[float, str]] = []
    for number, (prompt, clips) in enumerate(prompts, 1):
        mine, theirs = likeliest_tokens(plain, prompt, clips), likeliest_tokens(fast, prompt, clips)
        behind, logits = prompt, plain.sampler.logits
        for step, (token, other) in enumerate(zip(mine, theirs, strict=True), 1):
            yield
            logits = plain.sampler.logits.clone()
            if token != other:
                where = f"Token {step} of rehearsed reply {number}"
                apart.append((_largest(logits - fast.sampler.logits), where))
            if token != other or token == EOS or step == TOKENS:
                break
            behind = [*behind, token]
        # The same token once more, with its whole context computed in one piece.
        plain.forget()
        for _ in plain.reply(behind, clips, 1):
            yield
        eps = torch.finfo(plain.embeddings.dtype).eps
        again = _largest(logits - plain.sampler.logits)
        rounding = max(rounding, again, eps * _largest(logits))
    for difference, where in apart:
        if difference > TIE * rounding:
            raise ModelError(f"{where} differs from the plain path's.")


def likeliest_tokens(
    loop: ReplyGenerator, prompt: PromptIds, clips: list[PromptClip]
) -> Iterator[int]:
    """Yield the tokens of a reply, then EOS forever."""
    for item in loop.reply(prompt, clips, TOKENS):
        if item is not None:
            yield item
    while True:
        yield EOS


def _largest(values: torch.Tensor) -> float:
    return float(values.abs().max())


def step_seconds(loop: ReplyGenerator, prompt: Prompt) -> float:
    """Return the seconds of a token after `prompt`: the fastest of TIMINGS."""
    for _ in loop.reply(*prompt, 1):
        pass
    times: list[float] = []
    for _ in range(1 + TIMINGS):  # the first one counts for nothing
        began = time.perf_counter()
        loop.run_steps(TIMED_STEPS)
        times.append((time.perf_counter() - began) / TIMED_STEPS)
    return min(times[1:])
