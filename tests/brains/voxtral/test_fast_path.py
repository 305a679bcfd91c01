"""The fast path at warm-up: when it answers, and when the plain path does."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from tests.brains.voxtral.taped import TapeRecorder, tape_instead_of_gpu
from tests.brains.voxtral.turns import answered, ids, made, utterance
from tests.fakes import SECONDS, Flag
from voxtui.brains.voxtral import brain as brain_module
from voxtui.brains.voxtral import fast_path
from voxtui.brains.voxtral.brain import VoxtralBrain
from voxtui.brains.voxtral.cuda_errors import marker, write_marker
from voxtui.brains.voxtral.decoder import Decoder
from voxtui.brains.voxtral.generate import ReplyGenerator
from voxtui.brains.voxtral.model_thread import ModelThread
from voxtui.dialogue.timestamps import Timestamps
from voxtui.errors import ModelError, RestartNeeded
from voxtui.models import cuda
from voxtui.settings.schema import BrainConfig, Config, GenerationConfig, VoxtralBrainConfig

PLAIN = "Voxtral answers without its fast path. "


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Stand in for a GPU, with short rehearsals."""
    tape_instead_of_gpu(monkeypatch, tmp_path)
    monkeypatch.setattr(brain_module, "REHEARSAL_SECONDS", 0.0)
    monkeypatch.setattr(fast_path, "TOKENS", 12)


def config(fast: bool = True) -> Config:
    return Config(
        brain=BrainConfig(voxtral=VoxtralBrainConfig(fast=fast)),
        generation=GenerationConfig(temperature=0.0, max_new_tokens=12),
    )


@contextmanager
def warm(directory: Path, fast: bool = True) -> Iterator[tuple[VoxtralBrain, list[str]]]:
    said: list[str] = []
    with closing(VoxtralBrain(config(fast), directory, said.append)) as brain:
        brain.warm_up(lambda step, fraction: None)
        yield brain, said


def answers_plainly(directory: Path, reason: str) -> None:
    """Check that one sentence gives the reason, and that nothing is left of the attempt."""
    with warm(directory) as (brain, said):
        assert [sentence.startswith(f"{PLAIN}{reason}") for sentence in said] == [True], said
        assert (brain.path, brain.fast_path) == ("", None)
        assert "fast" not in brain.description
        assert brain.generator.longest == brain.generator.decoder.longest
        loop = brain.generator
        assert not loop.graphs.replays and not loop.embedder.graphs.replays
        assert brain.generator.queue_ahead is False
        assert answered(brain, (), utterance(1.0))
    assert not marker().exists()


def test_a_fast_path_with_the_same_tokens_answers(tiny_voxtral: Path) -> None:
    with warm(tiny_voxtral) as (brain, said):
        assert not said
        assert brain.path == "fast path"
        assert brain.description.endswith(", fast path")
        timestamps = Timestamps()
        fast = ids(answered(brain, (), utterance(1.0), timestamps))
        assert timestamps.path == "fast path"
        assert brain.fast_path
        assert (brain.fast_path.plain_ms, brain.fast_path.fast_ms) == (1000.0, 500.0)
    assert not marker().exists()
    with warm(tiny_voxtral, fast=False) as (brain, said):
        assert (said, brain.path) == ([], "")
        assert ids(answered(brain, (), utterance(1.0))) == fast


def test_an_utterance_is_encoded_once_for_its_answer_and_its_transcript(
    tiny_voxtral: Path,
) -> None:
    with warm(tiny_voxtral) as (brain, _):
        said = utterance(1.0)
        answered(brain, (), said)
        before = brain.generator.embedder.windows
        assert list(brain.transcribe(said, Flag()))
        assert brain.generator.embedder.windows == before


@pytest.mark.parametrize("share", [0.9, 0.0])
def test_another_token_leaves_the_plain_path(
    tiny_voxtral: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """Part of a layer is missing, as with a kernel that reads too little."""

    def spoil(decoder: Decoder) -> None:
        decoder.layers = [replace(layer, down=layer.down * share) for layer in decoder.layers]

    monkeypatch.setattr(fast_path, "use_kernels", spoil)
    answers_plainly(tiny_voxtral, "Token ")


@pytest.mark.slow
def test_rounding_alone_is_no_difference(
    tiny_voxtral: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tokens of the plain path are as likely but for rounding; the fast one takes the other."""
    flipped: list[int] = []
    choose = fast_path.likeliest_tokens

    def tied(loop: ReplyGenerator, prompt: Any, clips: Any) -> Iterator[int]:
        for number, token in enumerate(choose(loop, prompt, clips)):
            flip = loop.kv_buckets and number == 5
            flipped.extend([token] if flip else [])
            yield token + 1 if flip else token

    monkeypatch.setattr(fast_path, "likeliest_tokens", tied)
    with warm(tiny_voxtral) as (brain, said):
        assert not said
        assert brain.path
    assert len(flipped) == 4


@pytest.mark.slow
def test_a_path_that_is_no_faster_leaves_the_plain_one(
    tiny_voxtral: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        fast_path, "step_seconds", lambda loop, prompt: 0.004 if loop.kv_buckets else 0.003
    )
    answers_plainly(tiny_voxtral, "It is not faster: 4.0 ms a token instead of 3.0.")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            RuntimeError("CUDA error: operation not permitted\nand much more"),
            "CUDA error: operation not permitted.",
        ),
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has"),
            "The GPU has no memory for it.",
        ),
        (ZeroDivisionError(), "ZeroDivisionError."),
    ],
)
def test_any_exception_is_one_sentence_and_the_plain_path_answers(
    tiny_voxtral: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, sentence: str
) -> None:
    class Failing(TapeRecorder):
        def __call__(self, work: Callable[[], None]) -> Callable[[], None]:
            if len(self.tapes) == 4:
                raise error
            return super().__call__(work)

    monkeypatch.setattr(fast_path.graphs, "CudaRecorder", Failing)
    answers_plainly(tiny_voxtral, sentence)


@pytest.mark.slow
def test_logits_that_are_not_numbers_leave_the_plain_path(
    tiny_voxtral: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoil(decoder: Decoder) -> None:
        decoder.layers = [replace(layer, down=layer.down * torch.nan) for layer in decoder.layers]

    monkeypatch.setattr(fast_path, "use_kernels", spoil)
    answers_plainly(tiny_voxtral, "Its output is not a number.")


def test_too_little_free_memory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1_000_000_000, 24e9))
    with pytest.raises(ModelError, match=r"needs 1\.6 GB of GPU memory, and 1\.0 GB are free"):
        fast_path.check_memory(torch.device("cuda"))
    fast_path.check_memory(torch.device("cpu"))


def test_after_an_attempt_that_took_the_process_with_it_the_start_is_plain(
    tiny_voxtral: Path,
) -> None:
    write_marker()
    with warm(tiny_voxtral) as (brain, said):
        assert said == [
            f"{PLAIN}The last attempt at it did not end. To try it again: voxtui doctor gpu"
        ]
        assert not brain.path
    assert marker().exists()  # until someone asks for another attempt
    marker().unlink()
    with warm(tiny_voxtral) as (brain, said):
        assert brain.path and not said


def test_without_a_place_for_the_marker_nothing_is_tried(
    tiny_voxtral: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/no-such-place")
    with warm(tiny_voxtral) as (brain, said):
        assert len(said) == 1
        assert "voxtral-fast-path-attempt cannot be written: " in said[0]
        assert not brain.path


@pytest.mark.parametrize("fast", [True, False])
def test_on_a_cpu_or_switched_off_nothing_is_tried(
    tiny_voxtral: Path, monkeypatch: pytest.MonkeyPatch, fast: bool
) -> None:
    monkeypatch.setattr(fast_path, "choose", lambda *given: pytest.fail("tried"))
    if fast:
        monkeypatch.undo()
    with warm(tiny_voxtral, fast=fast) as (brain, said):
        assert (brain.path, said) == ("", [])


def test_an_error_that_stays_in_the_device_asks_for_a_restart(
    tiny_voxtral: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_device(monkeypatch)
    with (
        closing(VoxtralBrain(config(), tiny_voxtral)) as brain,
        pytest.raises(RestartNeeded, match="unusable: CUDA error: an illegal memory access"),
    ):
        brain.warm_up(lambda step, fraction: None)
    assert marker().exists()


def lose_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail in the middle of a capture, and at each use of the device after that."""
    lost = RuntimeError("CUDA error: an illegal memory access was encountered")

    class Losing(TapeRecorder):
        def __call__(self, work: Callable[[], None]) -> Callable[[], None]:
            if len(self.tapes) == 4:
                monkeypatch.setattr(ReplyGenerator, "forget", fail)
                raise lost
            return super().__call__(work)

    def fail(self: ReplyGenerator) -> None:
        raise lost

    monkeypatch.setattr(fast_path.graphs, "CudaRecorder", Losing)


def test_an_attempt_that_hangs_asks_for_a_restart_and_can_be_closed(
    tiny_voxtral: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = Event()

    class Hanging(TapeRecorder):
        def __call__(self, work: Callable[[], None]) -> Callable[[], None]:
            over.wait()
            return super().__call__(work)

    monkeypatch.setattr(fast_path.graphs, "CudaRecorder", Hanging)
    monkeypatch.setattr(fast_path, "HANG_SECONDS", 0.3)
    try:
        with (
            closing(VoxtralBrain(config(), tiny_voxtral)) as brain,
            pytest.raises(RestartNeeded, match="fast path hung"),
        ):
            brain.warm_up(lambda step, fraction: None)
        assert marker().exists()
    finally:
        over.set()


def test_a_user_who_leaves_during_the_attempt_ends_it_and_no_marker_stays(
    tiny_voxtral: Path,
) -> None:
    def leave(step: str, fraction: float | None) -> None:
        if step == "trying the fast path":
            raise InterruptedError

    with (
        closing(VoxtralBrain(config(), tiny_voxtral)) as brain,
        pytest.raises(InterruptedError),
    ):
        brain.warm_up(leave)
    assert not marker().exists()


def test_a_user_who_leaves_does_not_wait_for_a_step_of_the_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopping, over = Flag(), Flag()

    def stuck(*rest: object) -> Iterator[None]:
        stopping.set()
        assert over.wait(SECONDS)
        yield

    monkeypatch.setattr(fast_path, "attempt", stuck)
    thread, plain = ModelThread(lambda error, again: False), SimpleNamespace(forget=lambda: None)
    thread.start()
    with closing(thread):
        sampling = GenerationConfig().sampling()
        assert (
            fast_path.choose(thread, cast("ReplyGenerator", plain), sampling, [], stopping) is None
        )
        assert not marker().exists()
        over.set()


# In use.


@pytest.mark.slow
def test_a_fast_path_that_fails_twice_costs_two_turns_and_not_the_model(
    tiny_voxtral: Path,
) -> None:
    with warm(tiny_voxtral) as (brain, said):
        for seed in range(2):
            brain.generator.cache.keys.fill_(torch.nan)
            brain.generator.embeddings.fill_(torch.nan)
            with pytest.raises(ModelError, match="not a number") as caught:
                answered(brain, (), utterance(1.0, seed))
            assert type(caught.value) is ModelError
        assert brain.path == ""
        assert said == [
            "Voxtral answers without its fast path from now on. "
            "Voxtral failed: its output is not a number."
        ]
        assert answered(brain, (), "hello")


@pytest.mark.slow
def test_a_closed_brain_frees_its_memory_at_once(tiny_voxtral: Path) -> None:
    """The next model may need that memory before the garbage collector comes."""
    brain = made(tiny_voxtral, fast=True)
    left = [weakref.ref(loop) for loop in (brain.generator, brain.transcriber)]
    gc.collect()
    gc.disable()
    try:
        brain.close()
        assert [loop() for loop in left] == [None, None]
    finally:
        gc.enable()


# Who may have kernels.


def refused(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]) -> str:
    """Return the refusal for a GPU of that capability."""
    monkeypatch.undo()
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "A Card")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    on_gpu: Any = SimpleNamespace(embedding=SimpleNamespace(device=torch.device("cuda")))
    with pytest.raises(ModelError) as caught:
        fast_path.use_kernels(on_gpu)
    assert not hasattr(on_gpu, "decode_step")
    return caught.value.message


def test_without_triton_or_on_an_old_gpu_kernels_are_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "compute capability 8.0, not A Card" in refused(monkeypatch, (7, 5))
    assert "Triton" in refused(monkeypatch, (9, 0))


def test_triton_keeps_its_compiled_kernels_in_the_users_cache_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", "")
    monkeypatch.delenv("TRITON_CACHE_DIR")
    fast_path.set_kernel_cache()
    assert fast_path.os.environ["TRITON_CACHE_DIR"] == str(tmp_path / "voxtui" / "triton")


@pytest.mark.slow
def test_a_gpu_that_torch_cannot_use_is_named_at_the_load(
    tiny_voxtral: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(cuda, "is_likely", lambda: True)
    monkeypatch.setattr(cuda, "why_unusable", lambda: "The driver is old. Update it.")
    monkeypatch.setattr(brain_module, "REHEARSAL_SECONDS", 0.0)
    with warm(tiny_voxtral) as (_, said):
        assert said == ["Voxtral runs on the CPU, slowly. The driver is old. Update it."]
