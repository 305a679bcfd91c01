"""The threads of the embedded brain, on a recogniser and a chat model that do as they are told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.brains import conftest
from tests.fakes import SECONDS, Flag, frames
from voxtui.brains.embedded.brain import ChatThread, Draft, EmbeddedBrain
from voxtui.brains.embedded.chat import ASK
from voxtui.dialogue.data import Token, UserTranscript, Utterance
from voxtui.dialogue.marks import Mark, Marks
from voxtui.dialogue.recording import Recording
from voxtui.errors import ModelError
from voxtui.settings.schema import Config, Sampling


class ScriptedRecogniser:
    """Each pass is the next script: a str is heard, an exception raised."""

    def __init__(self) -> None:
        self.script: list[str | Exception] = []
        self.passes = 0
        self.passed = Flag()

    def recognise(self, samples: object) -> str:
        self.passes += 1
        heard = self.script.pop(0) if self.script else "hello there"
        self.passed.set()
        if isinstance(heard, Exception):
            raise heard
        return heard

    def close(self) -> None: ...


class ScriptedChat:
    """Stands in for Llama: answers in three tokens; `before` is called with each prompt."""

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self.before: Callable[[str], object] = lambda prompt: None

    def run(
        self,
        prompt: str,
        sampling: Sampling,
        max_tokens: int,
        on_prefilled: Callable[[], bool],
        on_text: Callable[[str], bool],
        *,
        past_end: bool = False,
    ) -> bool:
        self.prompts.append(prompt)
        self.before(prompt)
        if on_prefilled():
            return False
        texts = ["It ", "is ", "so."][:max_tokens]
        for number, text in enumerate(texts, 1):
            if on_text(text) and number < len(texts):
                return False
        return True

    def close(self) -> None: ...


class Brain(EmbeddedBrain):
    """As after its warm-up."""

    def __init__(self) -> None:
        super().__init__(Config())
        self.recogniser, self.llama = ScriptedRecogniser(), ScriptedChat()
        self._recogniser = self.recogniser  # type: ignore[assignment]
        self._llama = self.llama  # type: ignore[assignment]
        self._chat = ChatThread(self._llama, self._sampling)
        self._follower.start()

    def answers(self, said: Utterance | str, marks: Marks | None = None) -> str:
        items = self.reply((), said, marks or Marks(), Flag())
        return "".join(item.text for item in items if isinstance(item, Token | UserTranscript))


@pytest.fixture
def brain() -> Iterator[Brain]:
    brain = Brain()
    yield brain
    brain.close()


def speak(brain: Brain, cancelled: Flag | None = None, pattern: str = "x" * 20) -> Utterance:
    """Hold the key while `pattern` is heard, until a pass over some of it has begun."""
    brain.recogniser.passed.clear()
    verdicts = [(frame, bool(frame.samples.any())) for frame in frames(pattern)]
    recording = conftest.speak(brain, verdicts, (), cancelled)
    assert brain.recogniser.passed.wait(SECONDS)
    said = recording.utterance()
    assert said is not None
    return said


def test_a_pass_that_fails_while_the_key_is_held_costs_nothing_but_its_time(brain: Brain) -> None:
    brain.recogniser.script = [ModelError("Not now.")]
    said = speak(brain)
    assert brain.answers(said) == "hello thereIt is so."
    assert speak(brain) is not None


def test_a_bug_while_the_key_is_held_does_not_stay_unknown(brain: Brain) -> None:
    brain.recogniser.script = [ZeroDivisionError()]
    said = speak(brain)
    with pytest.raises(ZeroDivisionError):
        brain.answers(said)
    assert speak(brain) is not None


def test_a_draft_that_was_paused_goes_on_with_other_random_numbers() -> None:
    """With the same ones, two tokens that have nothing to do with each other would be as lucky."""
    draft, seeds = Draft("Why?", 9), list[int]()

    class Chat(ScriptedChat):
        def run(self, prompt, sampling, *rest, **options):  # type: ignore[no-untyped-def]
            seeds.append(sampling.seed)
            return super().run(prompt, sampling, *rest, **options)

    sampling = Config().generation.sampling()
    draft.work(Chat(), sampling, lambda: len(draft._texts) < 2)  # type: ignore[arg-type]
    assert not draft.ended
    draft.work(Chat(), sampling, lambda: True)  # type: ignore[arg-type]
    assert draft.ended
    assert seeds == [sampling.seed, sampling.seed + 2]


def test_a_draft_that_comes_to_its_end_as_it_is_paused_does_not_go_on_behind_it() -> None:
    draft = Draft("Why?", 9)
    sampling = Config().generation.sampling()
    draft.work(ScriptedChat(), sampling, lambda: len(draft._texts) < 3)  # type: ignore[arg-type]
    assert draft.ended
    assert "".join(draft.texts(Flag())) == "It is so."


def test_a_reply_that_nobody_wants_any_more_is_not_worked_on(brain: Brain) -> None:
    stopped, cancelled = Flag(), Flag()

    def endless(prompt, sampling, tokens, on_prefilled, on_text, **options):  # type: ignore[no-untyped-def]
        while not on_text("so "):
            pass
        stopped.set()

    brain.llama.run = endless  # type: ignore[method-assign]
    for item in brain.reply((), "Why?", Marks(), cancelled):
        if isinstance(item, Token):
            cancelled.set()
    assert stopped.wait(SECONDS)


def test_what_was_drafted_for_an_utterance_is_not_worked_on_once_that_is_dropped(
    brain: Brain,
) -> None:
    drafting, drafted, cancelled, unwanted = Flag(), Flag(), Flag(), list[bool]()

    def run(prompt, sampling, tokens, on_prefilled, on_text, **options):  # type: ignore[no-untyped-def]
        if tokens:
            drafting.set()
            assert cancelled.wait(SECONDS)
            unwanted.append(on_text("So"))
            drafted.set()
        return True

    brain.llama.run = run  # type: ignore[method-assign]
    speak(brain, cancelled, "x" * 20 + "..")
    assert drafting.wait(SECONDS)
    cancelled.set()
    assert drafted.wait(SECONDS)
    assert unwanted == [True]


def test_what_the_chat_model_writes_gives_the_terminal_no_command(brain: Brain) -> None:
    def run(prompt, sampling, tokens, on_prefilled, on_text, **options):  # type: ignore[no-untyped-def]
        for text in ("\x1b", "]0;title\x07Two\n\t", "lines\x9b2J\r."):
            on_text(text)
        return True

    brain.llama.run = run  # type: ignore[method-assign]
    assert brain.answers("Why?") == "Why?]0;titleTwo\n\tlines2J."


def test_words_that_hold_still_are_answered_before_speech_pauses(brain: Brain) -> None:
    drafted = Flag()

    def before(prompt: str) -> None:
        if prompt.endswith("hello there" + ASK):
            drafted.set()

    brain.llama.before = before
    recording = conftest.speak(brain, [(frame, True) for frame in frames("x" * 20)])
    assert brain.recogniser.passed.wait(SECONDS)
    for frame in frames("x" * 40, 2000.0):
        recording.append(frame, True)
        brain.wake()
    assert drafted.wait(SECONDS)


def test_a_pause_right_behind_what_a_pass_has_heard_is_answered(brain: Brain) -> None:
    prefilled, drafted = Flag(), Flag()

    def before(prompt: str) -> None:
        if prompt.endswith("hello there" + ASK):
            drafted.set()
        elif prompt.endswith("hello"):
            prefilled.set()

    brain.llama.before = before
    recording = Recording()
    brain.listen((), recording, Flag())
    for frame in frames("x" * 20):
        recording.append(frame, True)
    brain.wake()  # one pass hears all of it
    assert prefilled.wait(SECONDS)
    assert not drafted.is_set()
    recording.append(frames(".", 2000.0)[0], False)
    brain.wake()
    assert drafted.wait(SECONDS)
    assert brain.recogniser.passes == 2


def test_what_is_typed_is_answered_whatever_an_utterance_that_was_dropped_still_asks_for(
    brain: Brain,
) -> None:
    """The chat model works on the newest prompt only: that must be the one that is waited for."""
    asking, go_on, asked, cancelled, typed = Flag(), Flag(), Flag(), Flag(), Flag()
    inner, advance = brain._prompt, brain._advance

    def prompt(past, words):  # type: ignore[no-untyped-def]
        if threading.current_thread() is brain._follower:
            asking.set()
            assert go_on.wait(SECONDS)
        return inner(past, words)

    def advanced(following, said):  # type: ignore[no-untyped-def]
        advance(following, said)
        asked.set()

    def before(prompt: str) -> None:
        if "typed" in prompt:
            typed.set()
            assert asked.wait(SECONDS)

    brain._prompt, brain._advance = prompt, advanced  # type: ignore[method-assign]
    brain.llama.before = before
    speak(brain, cancelled)
    assert asking.wait(SECONDS)
    cancelled.set()
    answered: list[str] = []
    reply = threading.Thread(target=lambda: answered.append(brain.answers("typed")), daemon=True)
    reply.start()
    typed.wait(0.1)  # it may have begun before the other asks
    go_on.set()
    reply.join(SECONDS)
    assert answered == ["typedIt is so."]


def test_work_that_is_under_way_at_the_release_counts_as_hidden(brain: Brain) -> None:
    working, go_on, marks = Flag(), Flag(), Marks()

    def before(prompt: str) -> None:
        if "hello there" in prompt:
            marks.mark(Mark.RELEASED, time.monotonic() + 0.5)
            working.set()
            assert go_on.wait(SECONDS)

    brain.llama.before = before
    said = speak(brain, pattern="x" * 20 + "..")
    assert working.wait(SECONDS)
    for item in brain.reply((), said, marks, Flag()):
        if isinstance(item, UserTranscript):
            go_on.set()
    assert marks.speculative_s >= 0.5
