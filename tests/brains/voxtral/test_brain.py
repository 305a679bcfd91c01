"""Voxtral's own loop against transformers: a tiny random checkpoint, float32, greedy."""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from tests.brains.conftest import Question, speak
from tests.brains.voxtral.tiny_voxtral import model
from tests.brains.voxtral.turns import (
    TOKENS,
    Oracle,
    answered,
    computed,
    ids,
    instruction,
    made,
    sound,
    utterance,
)
from tests.fakes import SECONDS, Flag
from voxtui.brains.voxtral.audio_encoder import AudioTower
from voxtui.brains.voxtral.brain import SHARE, VoxtralBrain
from voxtui.brains.voxtral.cuda_errors import sentence_of
from voxtui.brains.voxtral.generate import ReplyGenerator, Sampler
from voxtui.brains.voxtral.model_thread import report_while
from voxtui.brains.voxtral.prompt import (
    BEGIN_AUDIO,
    EOS,
    WINDOW_SAMPLES,
    WINDOW_TOKENS,
    Detokenizer,
    PromptClip,
    PromptHistory,
    PromptTurn,
    Tekken,
    chat,
    token_ids,
    transcription,
    without_trailing_zeros,
)
from voxtui.brains.voxtral.weights import best_dtype, parts
from voxtui.dialogue.data import (
    FRAME_SAMPLES,
    FRAME_SECONDS,
    SAMPLE_RATE,
    Frame,
    Token,
    UserTranscript,
    Utterance,
)
from voxtui.dialogue.history.history import History
from voxtui.dialogue.live_config import LiveConfig
from voxtui.dialogue.protocols import Past, PastTurn, ReplyOptions, TurnRequest, placeholder
from voxtui.dialogue.recording import Recording
from voxtui.dialogue.timestamps import Milestone, Timestamps
from voxtui.errors import ModelError, ModelLost
from voxtui.settings.schema import (
    Config,
    GenerationConfig,
    HistoryConfig,
)


@pytest.fixture(scope="session")
def directory(tiny_voxtral: Path) -> Path:
    return tiny_voxtral


@pytest.fixture(scope="module")
def brain(directory: Path) -> Iterator[VoxtralBrain]:
    brain = made(directory)
    yield brain
    brain.close()


# The front end and the prompt.


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.3, 2.0, 29.99, 30.0, 31.0])
def test_the_features_are_those_of_the_processor(
    brain: VoxtralBrain, oracle: Oracle, seconds: float
) -> None:
    samples = sound(seconds)
    mel = brain.generator.embedder.mel
    ours = mel(mel.filled(samples, PromptClip(0, samples).windows))
    assert torch.equal(ours, oracle.features(samples))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_audio_features_equal_those_of_transformers(oracle: Oracle, dtype: torch.dtype) -> None:
    theirs = copy.deepcopy(oracle.model).to(dtype)
    features = oracle.features(sound(3.0)).to(dtype)
    with torch.inference_mode():
        wanted = theirs.model.get_audio_features(features, return_dict=True).pooler_output  # type: ignore[call-arg]
        found = AudioTower(theirs)(features)
    error = (found.float() - wanted.float()).norm() / wanted.float().norm()
    assert error < (1e-5 if dtype == torch.float32 else 3e-2)


def conversation(directory: Path, *turns: tuple[str, object]) -> list[dict[str, object]]:
    """Build a chat for the processor; write arrays to files, because it takes no arrays."""
    messages: list[dict[str, object]] = []
    for number, (role, content) in enumerate(turns):
        parts = content if isinstance(content, list) else [content]
        found: list[dict[str, str]] = []
        for part in parts:
            if isinstance(part, np.ndarray):
                path = directory / f"{number}.wav"
                soundfile.write(path, part, SAMPLE_RATE, subtype="FLOAT")
                found.append({"type": "audio", "path": str(path)})
            else:
                found.append({"type": "text", "text": part})
        messages.append({"role": role, "content": found})
    return messages


def test_the_prompt_is_that_of_the_processor(
    directory: Path, oracle: Oracle, tmp_path: Path
) -> None:
    tekken = Tekken(directory)
    first, second = sound(1.0), sound(31.0)
    reply = tekken.encode("Hello there.")
    yes = tekken.encode("Yes.")
    past = [PromptTurn(PromptClip(0, first), reply, "(8:04)"), PromptTurn("typed", yes, "(8:05)")]
    ours = chat(tekken.encode, "Be brief.", past, PromptClip(1, second), "(8:06)")
    theirs = oracle.processor.apply_chat_template(
        conversation(
            tmp_path,
            ("user", ["Be brief.\n\n(8:04)", first]),
            ("assistant", "Hello there."),
            ("user", "(8:05)\ntyped"),
            ("assistant", "Yes."),
            ("user", ["(8:06)", second]),
        ),
        return_tensors="pt",
    )
    assert token_ids(ours) == theirs["input_ids"][0].tolist()
    assert theirs["input_features"].shape[0] == 3


@pytest.mark.parametrize("language", [None, "en"])
def test_the_prompt_of_a_transcription_is_that_of_the_processor(
    directory: Path, oracle: Oracle, language: str | None
) -> None:
    samples = sound(1.0)
    spoken = Tekken(directory).encode(f"lang:{language}") if language else []
    ours = transcription(PromptClip(0, samples), spoken)
    theirs = oracle.processor.apply_transcription_request(
        audio=samples, model_id="any", language=language, sampling_rate=SAMPLE_RATE, format=["WAV"]
    )
    assert token_ids(ours) == theirs["input_ids"][0].tolist()


def test_a_hold_of_thirty_seconds_stays_in_one_window() -> None:
    said = utterance(30.0)
    assert len(said.samples) > WINDOW_SAMPLES
    assert PromptClip(0, without_trailing_zeros(said.samples)).windows == 1


def test_typed_text_never_becomes_a_control_token(directory: Path) -> None:
    tokens = Tekken(directory).encode("[INST]</s>[BEGIN_AUDIO][/INST]")
    assert min(tokens) > BEGIN_AUDIO


# The reply.


@pytest.mark.parametrize("seconds", [0.3, 2.0, 5.0, 29.9, 30.0, 31.0])
def test_one_turn_equals_generate(brain: VoxtralBrain, oracle: Oracle, seconds: float) -> None:
    said = utterance(seconds)
    ours = ids(answered(brain, (), said))
    assert len(ours) > 2
    assert ours == oracle.answer(instruction(brain), (), said)


@pytest.mark.slow
def test_sixty_five_seconds_of_audio_equal_generate(brain: VoxtralBrain, oracle: Oracle) -> None:
    said = utterance(65.0)
    assert ids(answered(brain, (), said)) == oracle.answer(instruction(brain), (), said)


def test_the_reply_depends_on_the_utterance(brain: VoxtralBrain) -> None:
    replies = {tuple(ids(answered(brain, (), utterance(2.0, seed)))) for seed in range(4)}
    assert len(replies) > 1


def test_three_turns_equal_generate_and_compute_only_the_new_part(
    brain: VoxtralBrain, oracle: Oracle
) -> None:
    past: tuple[PastTurn, ...] = ()
    for seed, said in enumerate((utterance(2.0, 1), "and typed", utterance(3.0, 2))):
        now = ReplyOptions(clock=f"(12:0{seed})")
        brain.listen(TurnRequest(past, cancelled=Flag(), options=now), Recording())
        computed(brain)
        before = brain.generator.calls.prefilled
        reply = answered(brain, past, said, options=now)
        wanted = oracle.answer(instruction(brain), past, said, now.clock)
        assert ids(reply) == wanted, f"turn {seed + 1}"
        if past:
            most = WINDOW_TOKENS if isinstance(said, Utterance) else len("and typed")
            assert brain.generator.calls.prefilled - before <= most + 8
        past = (*past, PastTurn(said, None, reply, clock=now.clock))


@pytest.mark.slow
def test_after_a_barge_in_the_history_holds_the_heard_part(
    brain: VoxtralBrain, oracle: Oracle
) -> None:
    said = utterance(2.0, 3)
    reply = answered(brain, (), said)
    past = (PastTurn(said, None, reply[:3]),)
    again = utterance(1.0, 4)
    assert ids(answered(brain, past, again)) == oracle.answer(instruction(brain), past, again)


@pytest.mark.slow
def test_after_eviction_old_turns_are_text_and_the_newest_stay_sound(
    brain: VoxtralBrain, oracle: Oracle
) -> None:
    history = History(LiveConfig(Config(history=HistoryConfig(turns=2, max_tokens=4000))))
    for seed in range(4):
        said = utterance(1.0, 10 + seed)
        reply = answered(brain, history.past, said)
        assert ids(reply) == oracle.answer(instruction(brain), history.past, said)
        turn = PastTurn(said, None, tuple(reply), number=seed)
        history.add(turn, turn.reply_text)
    kinds = [isinstance(turn.user_input, Utterance) for turn in history.past]
    assert kinds == [False, False, True, True]
    assert history.past[0].user_input == placeholder(utterance(1.0, 10))


def test_a_turn_is_one_prefill_and_a_step_for_each_token(brain: VoxtralBrain) -> None:
    said = utterance(2.0, 5)
    calls, windows = brain.generator.calls, brain.generator.embedder.windows
    before = (calls.prefills, calls.steps)
    reply = answered(brain, (), said)
    assert calls.prefills - before[0] == 1
    assert calls.steps - before[1] <= len(ids(reply))
    assert brain.generator.embedder.windows - windows == 1


@pytest.mark.slow
def test_a_transcription_equals_generate(
    brain: VoxtralBrain, directory: Path, oracle: Oracle
) -> None:
    said = utterance(2.0, 6)
    samples = without_trailing_zeros(said.samples)
    prompt = token_ids(transcription(PromptClip(0, samples)))
    ours = ids(tuple(brain.transcribe(said, Flag())))
    assert ours == oracle.reply(prompt, [samples], tokens=max(len(ours), 1))[: len(ours)]
    assert ours


# Work ahead of the release.


def spoken(brain: VoxtralBrain, question: Question, past: Past = ()) -> Recording:
    """Speak a question, with the silence after it, into `brain`."""
    return speak(brain, question.verdicts(), past)


def test_a_kept_speculation_gives_the_same_reply(
    brain: VoxtralBrain, oracle: Oracle, questions: list[Question]
) -> None:
    said = spoken(brain, questions[0]).utterance()
    assert said is not None
    computed(brain)
    timestamps = Timestamps()
    timestamps.record(Milestone.RELEASED)
    prefills = brain.generator.calls.prefills
    reply = answered(brain, (), said, timestamps)
    assert brain.generator.calls.prefills == prefills
    assert timestamps.speculative_s > 0
    assert ids(reply) == oracle.answer(instruction(brain), (), said)


def test_a_speculation_for_other_samples_is_dropped(
    brain: VoxtralBrain, oracle: Oracle, questions: list[Question]
) -> None:
    spoken(brain, questions[0])
    said = utterance(2.0, 7)
    assert ids(answered(brain, (), said)) == oracle.answer(instruction(brain), (), said)


@pytest.mark.slow
def test_a_speculation_stops_after_a_few_tokens(directory: Path, questions: list[Question]) -> None:
    brain = made(directory, max_new_tokens=100)
    try:
        before = brain.generator.calls.steps
        spoken(brain, questions[0])
        computed(brain)
        assert brain.generator.calls.steps - before < 60
    finally:
        brain.close()


def speculations(brain: VoxtralBrain, verdicts: Iterable[bool], took: float) -> list[int]:
    """Return after how many frames a reply was begun, if an utterance takes `took` seconds."""
    begun, recording = list[int](), Recording()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(brain, "took", took)
        brain.listen(TurnRequest(cancelled=(cancelled := Flag())), recording)
        before = brain.thread.newest
        samples = np.zeros(FRAME_SAMPLES, np.float32)
        for number, speech in enumerate(verdicts, 1):
            recording.append(Frame(samples, 1000 + number * FRAME_SECONDS), speech)
            brain.wake()
            if brain.thread.newest is not before:
                before = brain.thread.newest
                begun.append(number)
        cancelled.set()
    return begun


def stammer(seconds: float) -> list[bool]:
    """Speech that stops every other frame."""
    return [number % 2 == 0 for number in range(round(seconds / FRAME_SECONDS))]


def test_speculative_work_stays_within_its_share_after_any_number_of_pauses(
    brain: VoxtralBrain,
) -> None:
    seldom = speculations(brain, stammer(5.0), took=0.1)
    assert len(seldom) <= 5.0 * SHARE / 0.1
    assert len(seldom) >= 10
    often = speculations(brain, stammer(5.0), took=0.0)
    assert len(often) > 4 * len(seldom)


def test_a_pause_soon_after_other_work_is_answered_a_little_later(brain: VoxtralBrain) -> None:
    begun = speculations(brain, [True] * 18 + [False] * 22, took=0.04)
    assert begun == [16, 21]  # by the schedule, and 0.16 s later


@pytest.mark.slow
def test_the_first_window_of_a_long_hold_is_encoded_while_the_key_is_held(
    brain: VoxtralBrain, oracle: Oracle
) -> None:
    whole = sound(33.0, 20)
    starts = range(0, 32 * SAMPLE_RATE, FRAME_SAMPLES)
    speak(
        brain, ((Frame(whole[s : s + FRAME_SAMPLES], 1000 + s / SAMPLE_RATE), True) for s in starts)
    )
    computed(brain)
    windows = brain.generator.embedder.windows
    said = Utterance(whole, ((0.0, 33.0),), 33.0)
    assert ids(answered(brain, (), said)) == oracle.answer(instruction(brain), (), said)
    assert brain.generator.embedder.windows - windows == 1


def test_the_history_is_in_the_cache_before_the_user_has_spoken(
    brain: VoxtralBrain, oracle: Oracle
) -> None:
    one, two = utterance(1.0, 21), utterance(1.0, 22)
    past = (PastTurn("in words", None, answered(brain, (), one)),)
    brain.listen(TurnRequest(past), Recording())
    computed(brain)
    before = brain.generator.calls.prefilled
    reply = answered(brain, past, two)
    assert brain.generator.calls.prefilled - before == WINDOW_TOKENS + 1
    assert ids(reply) == oracle.answer(instruction(brain), past, two)


def test_a_transcription_leaves_the_conversation_in_the_cache(brain: VoxtralBrain) -> None:
    said = utterance(1.0, 23)
    answered(brain, (), said)
    held, windows = list(brain.generator.cache.held), brain.generator.embedder.windows
    assert list(brain.transcribe(said, Flag()))
    assert brain.generator.cache.held == held
    assert brain.generator.embedder.windows == windows


def test_what_is_said_next_does_not_cut_off_a_transcript(
    brain: VoxtralBrain, questions: list[Question], monkeypatch: pytest.MonkeyPatch
) -> None:
    said, gate, reply = utterance(1.0, 6), Flag(), brain.transcriber.reply
    whole = list(brain.transcribe(said, Flag()))

    def gated(*arguments: Any) -> Iterator[int | None]:
        yield from itertools.islice(tokens := reply(*arguments), 3)
        assert gate.wait(SECONDS)
        yield from tokens

    monkeypatch.setattr(brain.transcriber, "reply", gated)
    transcript = brain.transcribe(said, Flag())
    begun = [next(transcript)]
    spoken(brain, questions[0])
    gate.set()
    assert [*begun, *transcript] == whole


def test_the_parts_of_a_long_file_are_not_kept(brain: VoxtralBrain) -> None:
    answered(brain, (), utterance(1.0, 26))
    clips = len(brain.generator.embedder.known)
    for seed in (27, 28):
        assert list(brain.transcribe(utterance(1.0, seed), Flag()))
    assert len(brain.generator.embedder.known) == clips


def test_a_loading_that_is_interrupted_leaves_no_thread(directory: Path) -> None:
    def quit_at(step: str, fraction: float | None) -> None:
        if step == "warming up":
            raise KeyboardInterrupt

    before = set(threading.enumerate())
    brain = VoxtralBrain(Config(), directory)
    with pytest.raises(KeyboardInterrupt):
        brain.warm_up(quit_at)
    brain.close()
    assert set(threading.enumerate()) <= before


def test_the_thread_of_a_load_that_hangs_does_not_hold_the_process() -> None:
    def is_daemon(_: Flag) -> bool:
        return threading.current_thread().daemon

    assert report_while(lambda step, fraction: None, "loading", is_daemon)


def test_a_conversation_longer_than_the_context_loses_its_oldest_turns(
    brain: VoxtralBrain, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = utterance(0.5, 24)
    past = (PastTurn(said, None, answered(brain, (), said)),)
    monkeypatch.setattr(brain.generator.decoder, "longest", 700)
    assert answered(brain, past, utterance(0.6, 25))
    assert len([e for e in brain.generator.cache.held if e < 0]) == WINDOW_TOKENS


def test_an_attached_text_is_left_out_last_and_the_user_is_told(directory: Path) -> None:
    said: list[str] = []
    history = PromptHistory(Tekken(directory), "Be brief.", said.append)
    text = PastTurn("a long text " * 50, None, (Token("Read."),), attached=True)
    past = [text, *(PastTurn(f"question {n}", None, (Token("Yes."),)) for n in range(3))]

    def prompt(past: Past, longest: int) -> list[int]:
        return history.prompt(past, "and now?", ReplyOptions(), longest)[0]

    whole = prompt([text, past[-1]], 10_000)
    assert prompt(past, len(whole)) == whole and not said
    assert prompt(past, 100) == prompt(past, 100) == prompt((), 10_000)
    assert said == ["Voxtral has no room for all attached texts, and leaves the oldest out."]


@pytest.mark.slow
def test_a_step_handed_over_before_the_last_token_was_read_changes_nothing(
    brain: VoxtralBrain, oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brain.generator, "queue_ahead", True)
    past: tuple[PastTurn, ...] = ()
    for seed in range(26, 29):
        said = utterance(1.0, seed)
        reply = answered(brain, past, said)
        assert ids(reply) == oracle.answer(instruction(brain), past, said)
        past = (*past, PastTurn(said, None, reply))


# Text, sampling, length.


def test_text_is_whole_characters_and_the_same_as_the_tokenizer_makes_it(directory: Path) -> None:
    tekken = Tekken(directory)
    text = "Grüße, 東京 🗼! naïve"
    tokens = tekken.encode(text)
    detokenizer = Detokenizer(tekken)
    pieces = [detokenizer.text(token) for token in tokens]
    assert "".join(pieces) + detokenizer.rest() == text
    assert not any("\ufffd" in piece for piece in pieces)


def test_control_characters_are_removed_from_the_text(directory: Path) -> None:
    tekken = Tekken(directory)
    detokenizer = Detokenizer(tekken)
    said = "".join(detokenizer.text(token) for token in tekken.encode("Hush\x1b[2J,\x07 now\n"))
    assert said == "Hush[2J, now\n"


def test_a_character_cut_in_two_is_shown_at_the_end(directory: Path) -> None:
    tekken = Tekken(directory)
    detokenizer = Detokenizer(tekken)
    (first, *_) = tekken.encode("🗼")
    assert detokenizer.text(first) == ""
    assert detokenizer.rest() == "\ufffd"


@pytest.mark.slow
def test_the_same_seed_gives_the_same_reply(directory: Path) -> None:
    brain = made(directory, temperature=1.5, top_p=0.95)
    other = made(directory, temperature=1.5, top_p=0.95, seed=7)
    try:
        said = utterance(2.0, 8)
        one, two = (ids(answered(brain, (), said)) for _ in range(2))
        assert one == two
        assert one != ids(answered(other, (), said))
    finally:
        brain.close()
        other.close()


@pytest.mark.slow
@pytest.mark.parametrize(("patience", "lengths"), [(600.0, [1, 1, 5, 15, 40]), (0.0, [1, 1])])
def test_utterances_of_all_lengths_are_rehearsed_at_warm_up_if_that_is_quick(
    directory: Path, monkeypatch: pytest.MonkeyPatch, patience: float, lengths: list[float]
) -> None:
    """Turn one must be as fast as turn ten."""
    tried: list[float] = []
    reply = ReplyGenerator.reply

    def noted(
        self: ReplyGenerator, prompt: list[int], clips: list[PromptClip], most: int
    ) -> object:
        if most == TOKENS:  # not a transcription
            tried.append(len(clips[0].samples) / SAMPLE_RATE)
        return reply(self, prompt, clips, most)

    monkeypatch.setattr(ReplyGenerator, "reply", noted)
    monkeypatch.setattr("voxtui.brains.voxtral.brain.REHEARSAL_SECONDS", patience)
    made(directory).close()
    assert tried == lengths


@pytest.mark.slow
def test_the_preset_reaches_the_model(directory: Path) -> None:
    config = Config(generation=GenerationConfig(preset="ultra"))
    brain = VoxtralBrain(config, directory)
    brain.warm_up(lambda step, fraction: None)
    try:
        assert "one short sentence" in instruction(brain)
        tokens = ids(answered(brain, (), utterance(1.0, 12)))
        assert 2 <= len(tokens) <= 25
        sampler = brain.generator.sampler
        found = (sampler.temperature, sampler.top_p, sampler.top_k, sampler.repetition_penalty)
        assert found == (0.05, 0.9, 30, 1.2)
    finally:
        brain.close()


@pytest.mark.slow
@pytest.mark.parametrize(("least", "most"), [(1, 4), (6, 6)])
def test_replies_keep_to_their_length(directory: Path, least: int, most: int) -> None:
    brain = made(directory, min_new_tokens=least, max_new_tokens=most)
    try:
        for seed in range(3):
            assert least <= len(ids(answered(brain, (), utterance(1.0, seed)))) <= most
    finally:
        brain.close()


# What can go wrong.


def test_cancelling_ends_the_reply_and_the_next_one_works(
    brain: VoxtralBrain, oracle: Oracle
) -> None:
    cancelled = Flag()
    items = brain.reply(TurnRequest((), utterance(2.0, 9), Timestamps(), cancelled))
    assert isinstance(next(items), Token)
    cancelled.set()
    assert len(list(items)) <= 1
    said = utterance(1.0, 9)
    assert ids(answered(brain, (), said)) == oracle.answer(instruction(brain), (), said)


def test_typed_words_are_yielded_as_the_transcript(brain: VoxtralBrain) -> None:
    first = next(iter(brain.reply(TurnRequest((), "hello"))))
    assert first == UserTranscript("hello")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failure", "sentence"),
    [
        (torch.OutOfMemoryError("no"), "Too little GPU memory"),
        ("nan", "not a number"),
        (RuntimeError("CUDA error: device-side assert triggered"), "The GPU failed"),
        (RuntimeError("Triton Error [CUDA]: an illegal memory access"), "The GPU failed"),
    ],
    ids=["memory", "nan", "sticky", "sticky, by a kernel"],
)
def test_a_failure_ends_the_turn_and_a_second_one_in_a_row_the_model(
    directory: Path,
    oracle: Oracle,
    monkeypatch: pytest.MonkeyPatch,
    failure: Exception | str,
    sentence: str,
) -> None:
    brain = made(directory)
    decoder = brain.generator.decoder
    working = decoder.run

    def run(x: torch.Tensor, *rest: object, **more: object) -> torch.Tensor:
        if isinstance(failure, str):
            return torch.full_like(x, torch.nan)
        raise failure

    said = utterance(2.0, 11)
    try:
        sticky = "CUDA" in str(failure)
        monkeypatch.setattr(decoder, "run", run)
        with pytest.raises(ModelLost if sticky else ModelError, match=sentence) as caught:
            answered(brain, (), said)
        if not sticky:
            assert not isinstance(caught.value, ModelLost)
            monkeypatch.setattr(decoder, "run", working)
            ours = ids(answered(brain, (), said))
            assert ours == oracle.answer(instruction(brain), (), said)
            monkeypatch.setattr(decoder, "run", run)
            with pytest.raises(ModelError) as caught:
                answered(brain, (), utterance(1.0))
            assert not isinstance(caught.value, ModelLost)
            with pytest.raises(ModelLost, match="Restart"):
                answered(brain, (), utterance(1.0))
    finally:
        brain.close()


def test_memory_that_runs_out_on_the_cpu_is_one_sentence() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 46)
    assert sentence_of(caught.value) == "Too little memory for this turn."


def test_a_cache_that_grew_is_emptied_too() -> None:
    loop = ReplyGenerator(*parts(model()), Sampler(4096, EOS, torch.device("cpu")), 16)
    for _ in loop.prepare([1] * 100, []):
        pass
    assert loop.cache.capacity > 100 and loop.cache.kv.any()
    loop.forget()
    assert not loop.cache.held and not loop.cache.kv.any()


def test_torch_does_not_use_the_attention_that_plans_each_length() -> None:
    torch.backends.cuda.enable_cudnn_sdp(True)
    parts(model())
    assert not torch.backends.cuda.cudnn_sdp_enabled()


@pytest.mark.parametrize(
    ("cuda", "brain_float", "wanted"),
    [(True, True, torch.bfloat16), (True, False, torch.float16), (False, False, "auto")],
)
def test_weights_are_of_bfloat16_or_of_float16_where_the_gpu_lacks_it(
    monkeypatch: pytest.MonkeyPatch, cuda: bool, brain_float: bool, wanted: torch.dtype | str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: brain_float)
    assert best_dtype(torch.device("cuda" if cuda else "cpu")) == wanted


@pytest.mark.slow
def test_a_bug_is_raised_unchanged(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brain = made(directory)

    def run(*rest: object, **more: object) -> torch.Tensor:
        raise ZeroDivisionError

    monkeypatch.setattr(brain.generator.decoder, "run", run)
    with pytest.raises(ZeroDivisionError):
        answered(brain, (), utterance(1.0))
    brain.close()


def test_a_folder_without_a_model_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be loaded"):
        VoxtralBrain(Config(), tmp_path).warm_up(lambda step, fraction: None)


def test_a_cut_off_weights_file_is_one_sentence(directory: Path, tmp_path: Path) -> None:
    for path in directory.iterdir():
        data = path.read_bytes()
        cut = data[: len(data) // 2] if path.suffix == ".safetensors" else data
        (tmp_path / path.name).write_bytes(cut)
    with pytest.raises(ModelError, match="cannot be loaded"):
        VoxtralBrain(Config(), tmp_path).warm_up(lambda step, fraction: None)


def test_weights_that_lack_a_tensor_are_not_made_up(directory: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    for path in directory.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    tensors = load_file(directory / "model.safetensors")
    del tensors[next(name for name in tensors if "down_proj" in name)]
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match="down_proj"):
        VoxtralBrain(Config(), tmp_path).warm_up(lambda step, fraction: None)
