"""Captured work on a machine without CUDA: a tape instead of the graph, the rest as it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.brains.voxtral.taped import CAPACITY, FakeCuda, TapeRecorder, tape_instead_of_gpu
from tests.brains.voxtral.tiny_voxtral import model
from tests.brains.voxtral.turns import Oracle, answered, computed, ids, instruction, made, utterance
from voxtui.brains.voxtral import graphs, weights
from voxtui.brains.voxtral.brain import VoxtralBrain
from voxtui.brains.voxtral.cuda_errors import too_little_memory
from voxtui.brains.voxtral.generate import ReplyGenerator, Sampler
from voxtui.brains.voxtral.graphs import Graphs
from voxtui.brains.voxtral.prompt import PAD
from voxtui.brains.voxtral.weights import parts
from voxtui.dialogue.protocols import PastTurn, TurnRequest
from voxtui.dialogue.recording import Recording
from voxtui.errors import ModelError
from voxtui.settings.schema import Config


@pytest.fixture(scope="module")
def taped(
    tiny_voxtral: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[VoxtralBrain, TapeRecorder]]:
    recorder = TapeRecorder()
    with pytest.MonkeyPatch.context() as patch:
        tape_instead_of_gpu(patch, tmp_path_factory.mktemp("cache"), lambda: recorder)
        brain = made(tiny_voxtral, fast=True)
    yield brain, recorder
    brain.close()


@pytest.fixture
def brain(taped: tuple[VoxtralBrain, TapeRecorder]) -> VoxtralBrain:
    return taped[0]


def replays(recorder: TapeRecorder) -> int:
    return sum(tape.replays for tape in recorder.tapes)


@pytest.mark.parametrize("seconds", [0.3, pytest.param(30.0, marks=pytest.mark.slow), 31.0])
def test_one_turn_equals_generate(brain: VoxtralBrain, oracle: Oracle, seconds: float) -> None:
    said = utterance(seconds)
    ours = ids(answered(brain, (), said))
    assert len(ours) > 2
    assert ours == oracle.answer(instruction(brain), (), said)


@pytest.mark.slow
def test_three_turns_and_one_after_a_barge_in_equal_generate(
    brain: VoxtralBrain, oracle: Oracle
) -> None:
    past: tuple[PastTurn, ...] = ()
    for said in (utterance(2.0, 1), "and typed", utterance(3.0, 2)):
        reply = answered(brain, past, said)
        assert ids(reply) == oracle.answer(instruction(brain), past, said)
        past = (*past, PastTurn(said, None, reply))
    cut = (*past[:-1], PastTurn(past[-1].user_input, None, past[-1].reply[:3]))
    said = utterance(1.0, 4)
    assert ids(answered(brain, cut, said)) == oracle.answer(instruction(brain), cut, said)


def test_after_the_release_a_turn_is_four_launches_and_one_for_each_further_token(
    taped: tuple[VoxtralBrain, TapeRecorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clip, the prompt, the first token, and with each token the next."""
    brain, recorder = taped
    brain.listen(TurnRequest(), Recording())
    computed(brain)
    before = replays(recorder)
    tokens = ids(answered(brain, (), utterance(2.0, 5)))
    assert replays(recorder) - before <= 3 + len(tokens)


@pytest.mark.slow
def test_a_step_queued_before_the_last_token_was_read_changes_nothing(
    brain: VoxtralBrain, oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brain.generator, "queue_ahead", True)
    past: tuple[PastTurn, ...] = ()
    for seed in (6, 7):
        said = utterance(1.0, seed)
        reply = answered(brain, past, said)
        assert ids(reply) == oracle.answer(instruction(brain), past, said)
        past = (*past, PastTurn(said, None, reply))


def test_a_step_reads_the_smallest_captured_bucket_that_holds_the_conversation(
    brain: VoxtralBrain, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, tuple[int, ...]]] = []
    run = Graphs.run

    def watched(self: Graphs, name: str, work: graphs.Work, *shape: int) -> None:
        assert (name, *shape) in self.replays
        seen.append((name, shape))
        run(self, name, work, *shape)

    monkeypatch.setattr(Graphs, "run", watched)
    brain.generator.forget()
    answered(brain, (), utterance(1.0, 8))
    assert {shape for name, shape in seen if name == "prefill"} == {(768, 1024, True)}
    assert {shape for name, shape in seen if name == "step"} == {(512, True)}
    seen.clear()
    answered(brain, (), utterance(31.0, 8))
    assert {shape for name, shape in seen if name == "prefill"} == {(768, 1024, True)}
    assert {shape for name, shape in seen if name == "step"} == {(1024, True)}


def test_work_without_room_for_padding_runs_unpadded(brain: VoxtralBrain, oracle: Oracle) -> None:
    loop = brain.generator
    prompt = [1, *([PAD] * (CAPACITY - 40))]
    for _ in loop.prepare(prompt[:-20], []):
        pass
    tokens = list(loop.reply(prompt, [], 5))
    assert tokens == oracle.reply(prompt, [], tokens=5)


def test_a_conversation_the_captured_cache_cannot_hold_loses_its_oldest_turns(
    brain: VoxtralBrain,
) -> None:
    past: tuple[PastTurn, ...] = ()
    for seed in range(4):
        said = utterance(0.5, 30 + seed)
        past = (*past, PastTurn(said, None, answered(brain, past, said)))
    assert brain.generator.cache.capacity == CAPACITY
    assert len([e for e in brain.generator.cache.held if e < 0]) == 3 * 375


@pytest.mark.slow
def test_sampled_replies_are_those_without_graphs(
    tiny_voxtral: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sampling = {
        "temperature": 1.0, "top_p": 0.9, "top_k": 30, "repetition_penalty": 1.2,
        "min_new_tokens": 6, "seed": 3,
    }  # fmt: skip
    said = utterance(1.0, 9)
    plain = made(tiny_voxtral, **sampling)
    tape_instead_of_gpu(monkeypatch, tmp_path)
    captured = made(tiny_voxtral, fast=True, **sampling)
    try:
        assert captured.generator.kv_buckets and not plain.generator.kv_buckets
        for _ in range(2):
            assert ids(answered(captured, (), said)) == ids(answered(plain, (), said))
    finally:
        captured.close()
        plain.close()


@pytest.mark.slow
def test_after_logits_that_were_not_numbers_the_next_reply_is_right(
    brain: VoxtralBrain, oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Masked values are still multiplied, so no broken value may stay in memory."""
    said = utterance(1.0, 10)
    brain.generator.cache.keys.fill_(torch.nan)
    brain.generator.embeddings.fill_(torch.nan)
    with pytest.raises(ModelError, match="not a number"):
        answered(brain, (), said)
    assert ids(answered(brain, (), said)) == oracle.answer(instruction(brain), (), said)


@pytest.mark.slow
def test_the_number_of_captured_operations_equals_that_of_the_latency_log() -> None:
    """Counted per layer, for the 32 of the encoder and the 30 of the language model."""

    def counted(layers: int) -> list[int]:
        decoder, embedder = parts(model(layers=layers))
        cpu = torch.device("cpu")
        sampler = Sampler(4096, 2, cpu, temperature=0.2, top_p=0.95, min_new_tokens=1)
        recorder = TapeRecorder()
        assert [*ReplyGenerator(decoder, embedder, sampler, 512).capture(recorder)]
        clip, _, first, step, prefill, *_ = (tape.launches for tape in recorder.tapes)
        return [clip, prefill + first, step]

    one, two = counted(1), counted(2)
    layers = [two[i] - one[i] for i in range(3)]
    assert layers == [10, 15, 15]
    whole = [one[i] + layers[i] * more for i, more in enumerate((31, 29, 29))]
    assert whole == [343, 482, 483]


# Where it cannot be done.


def warmed(directory: Path, config: Config) -> tuple[VoxtralBrain, list[str], list[str]]:
    said: list[str] = []
    steps: list[str] = []
    brain = VoxtralBrain(config, directory, said.append)
    brain.warm_up(lambda step, fraction: steps.append(step))
    return brain, said, steps


def test_a_model_that_does_not_fit_is_one_sentence(
    tiny_voxtral: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*rest: object) -> None:
        torch.empty(1 << 46)

    monkeypatch.setattr(weights, "reply_generator", full)
    with pytest.raises(ModelError, match=r"Too little free memory on the CPU for Voxtral\.$"):
        VoxtralBrain(Config(), tiny_voxtral).warm_up(lambda step, fraction: None)


def test_a_gpu_that_is_too_small_for_the_model_is_named_with_what_to_do() -> None:
    assert "RTX 4050 has 6.2 GB. Set brain.name" in str(too_little_memory("RTX 4050", 6.2e9))
    assert "nvidia-smi" in str(too_little_memory("RTX 4090", 24e9))


@pytest.mark.parametrize(
    "work",
    [
        lambda numbers: numbers.fill_(int(numbers.sum())),
        lambda numbers: numbers.add_(torch.tensor([1.0, 2.0, 3.0])),
        lambda numbers: numbers.add_(torch.arange(3)),
        lambda numbers: numbers.__setitem__(0, 1.0),
    ],
)
def test_work_that_asks_the_device_or_needs_the_host_cannot_be_captured(work) -> None:
    numbers = torch.ones(3)
    with torch.inference_mode(), pytest.raises(RuntimeError, match="capturing"):
        TapeRecorder()(lambda: work(numbers))


def test_a_graph_is_captured_after_a_run_that_sets_things_up_and_launched_once_before_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeCuda()
    monkeypatch.setattr(graphs.torch, "cuda", fake)
    replay = graphs.CudaRecorder()(lambda: fake.log.append("work"))
    begin = "begin in pool, thread_local"
    assert fake.log == ["wait for default", "work", begin, "work", "end", "replay"]
    replay()
    assert fake.log[-2:] == ["replay", "replay"]
    assert fake.current == "default"


def test_a_capture_that_fails_raises_the_reason_and_restores_the_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeCuda()
    monkeypatch.setattr(graphs.torch, "cuda", fake)

    def work() -> None:
        if fake.log[-1].startswith("begin"):
            raise RuntimeError("not permitted")

    with pytest.raises(RuntimeError, match="not permitted"):
        graphs.CudaRecorder()(work)
    assert fake.current == "default"


@pytest.mark.slow
def test_nothing_is_captured_unless_it_is_asked_for(tiny_voxtral: Path) -> None:
    brain, said, steps = warmed(tiny_voxtral, Config())
    brain.close()
    assert not said
    assert not any("captur" in step or "fast" in step for step in steps)
