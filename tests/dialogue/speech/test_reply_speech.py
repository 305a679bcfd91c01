from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import count
from types import SimpleNamespace

import pytest

from tests.fakes import SECONDS, BeepVoice, FakeSpeaker
from voxtui.dialogue.data import SpeechChunk, Token
from voxtui.dialogue.prefetch import prefetch
from voxtui.dialogue.protocols import Progress, StopFlag, Voice
from voxtui.dialogue.speech.reply_speech import Speech, VoiceFailed, VoiceTimeout, VoiceWorker
from voxtui.dialogue.timestamps import Timestamps
from voxtui.errors import DeviceError, ModelError

Flag = threading.Event


never = threading.Event()


def quiet(step: str, fraction: float | None) -> None: ...


def voice_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "voxtui-voice"]


@contextmanager
def working(voice: Voice, timeout_s: float = SECONDS) -> Generator[VoiceWorker]:
    worker = VoiceWorker(voice, timeout_s)
    try:
        yield worker
    finally:
        worker.close(SECONDS)
        for thread in voice_threads():
            thread.join(SECONDS)
        assert voice_threads() == []


def say(
    reply: str | list[str],
    voice: Voice,
    speaker: FakeSpeaker | None = None,
    stopped: StopFlag = never,
) -> Speech:
    """Speak `reply`, given as one token or as several."""
    tokens = [reply] if isinstance(reply, str) else reply
    with working(voice) as worker:
        speech = Speech(worker, speaker or FakeSpeaker(), Timestamps(), stopped)
        play(speech, (Token(text) for text in tokens))
    return speech


def play(speech: Speech, tokens: Generator[Token]) -> None:
    with prefetch(tokens, "test") as prefetched:
        speech.play(prefetched)


# The voice's thread.


def test_one_thread_warms_the_voice_up_speaks_every_clause_and_closes_it() -> None:
    threads = list[threading.Thread]()

    class Noting(BeepVoice):
        def warm_up(self, progress: Progress) -> None:
            threads.append(threading.current_thread())

        def close(self) -> None:
            threads.append(threading.current_thread())

    with working(Noting(lambda clause: threads.append(threading.current_thread()))) as worker:
        worker.warm_up(quiet)
        for clause in ("One.", "Two."):
            assert [chunk.text for chunk in worker.speak(clause, never)] == [clause]
    assert len(threads) == 4 and {thread.name for thread in threads} == {"voxtui-voice"}
    assert len(set(threads)) == 1


def test_a_warm_up_that_fails_raises_and_leaves_no_thread() -> None:
    class Missing(BeepVoice):
        def warm_up(self, progress: Progress) -> None:
            raise ModelError("The voice is not installed.")

    voice = Missing()
    worker = VoiceWorker(voice, SECONDS)
    with pytest.raises(ModelError, match="not installed"):
        worker.warm_up(quiet)
    assert voice.closed and voice_threads() == []


def test_a_voice_that_was_never_used_is_closed_without_a_thread() -> None:
    voice = BeepVoice()
    VoiceWorker(voice, SECONDS).close()
    assert voice.closed and voice_threads() == []


def test_a_voice_that_fails_writes_nothing_of_the_answer_to_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(clause: str) -> None:
        raise ValueError(f"cannot say {clause!r}")

    with pytest.raises(VoiceFailed, match="The voice failed: cannot say"):
        say("A secret.", BeepVoice(broken))
    assert "secret" not in caplog.text


def test_a_voice_that_exceeds_its_timeout_is_stuck_until_its_call_returns() -> None:
    go_on = Flag()

    def slow(clause: str) -> None:
        assert clause != "One." or go_on.wait(SECONDS)

    with working(BeepVoice(slow), timeout_s=0.01) as worker:
        with pytest.raises(VoiceTimeout, match=r"The voice took more than 0\.01 s to begin\."):
            list(worker.speak("One.", never))
        assert worker.stuck
        thread = voice_threads()
        go_on.set()
        poll = Flag()
        while worker.stuck:
            assert not poll.wait(0.001)
        assert [chunk.text for chunk in worker.speak("Two.", never)] == ["Two."]
        assert voice_threads() == thread


def test_closing_does_not_wait_for_a_stuck_voice_which_is_closed_once_it_returns() -> None:
    go_on = Flag()
    voice = BeepVoice(lambda clause: go_on.wait(SECONDS))
    with working(voice, timeout_s=0.01) as worker:
        with pytest.raises(VoiceTimeout):
            list(worker.speak("One.", never))
        worker.close(SECONDS)
        assert not voice.closed
        go_on.set()
    assert voice.closed


def test_closing_waits_for_a_stuck_voice_that_the_next_session_uses() -> None:
    go_on = Flag()
    worker = VoiceWorker(BeepVoice(lambda clause: go_on.wait(SECONDS)), 0.01, owned=False)
    with pytest.raises(VoiceTimeout):
        list(worker.speak("One.", never))
    closing = threading.Thread(target=worker.close)
    closing.start()
    closing.join(0.1)
    waits = closing.is_alive()
    go_on.set()
    closing.join(SECONDS)
    assert waits and voice_threads() == []


def test_a_clause_that_comes_late_but_in_time_is_waited_for() -> None:
    waited_for = Flag()

    def stopped() -> bool:
        waited_for.set()
        return False

    with working(BeepVoice(lambda clause: waited_for.wait(SECONDS))) as worker:
        assert list(worker.speak("One.", SimpleNamespace(is_set=stopped)))


def test_a_clause_is_not_late_because_the_process_was_suspended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While Ctrl+Z has stopped the process, the clock goes on."""
    monkeypatch.setattr(time, "monotonic", count(0.0, 100.0).__next__)
    waited, go_on = Flag(), Flag()

    def stopped() -> bool:
        (go_on if waited.is_set() else waited).set()
        return False

    with working(BeepVoice(lambda clause: go_on.wait(SECONDS))) as worker:
        assert list(worker.speak("One.", SimpleNamespace(is_set=stopped)))


def test_a_cancelled_clause_is_not_waited_for_and_the_next_one_waits_for_it() -> None:
    speaking, go_on = Flag(), Flag()

    def deep(clause: str) -> None:
        speaking.set()
        assert clause != "One." or go_on.wait(SECONDS)

    voice = BeepVoice(deep)
    with working(voice) as worker:
        assert list(worker.speak("One.", speaking)) == []

        def stopped() -> bool:
            go_on.set()
            return False

        assert [chunk.text for chunk in worker.speak("Two.", SimpleNamespace(is_set=stopped))] == [
            "Two."
        ]
        assert voice.clauses == ["One.", "Two."]


def test_no_clause_is_begun_once_it_is_stopped() -> None:
    voice = BeepVoice()
    with working(voice) as worker:
        already = Flag()
        already.set()
        with pytest.raises(StopIteration) as ended:
            next(worker.speak("One.", already))
        assert ended.value.value is False  # nothing of it counts as spoken
    assert voice.clauses == []


# What is spoken.


def test_a_clause_that_breaks_off_is_not_spoken_as_if_it_ended() -> None:
    voice = BeepVoice()
    say(["The", " capital", " of", " France", " is", " Paris", "."], voice)
    assert voice.clauses == ["The capital of France,", "is Paris."]


@pytest.mark.parametrize("reply", ["!", "…", "?!"])
def test_a_reply_of_signs_is_not_spoken(reply: str) -> None:
    voice = BeepVoice()
    say(reply, voice)
    assert voice.clauses == []


@pytest.mark.parametrize(
    ("reply", "spoken"),
    [
        ("42. That is six times seven.", "42. That is six times seven."),
        ("1969) a moon", "1969) a moon,"),
        ("1. Eat well.\n2. Sleep.", "Eat well. Sleep."),
    ],
)
def test_a_number_that_is_the_answer_is_spoken_and_that_of_a_list_is_not(
    reply: str, spoken: str
) -> None:
    voice = BeepVoice()
    say(reply, voice)
    assert " ".join(voice.clauses) == spoken


def test_every_clause_is_made_before_the_first_one_was_played_to_its_end() -> None:
    voice, speaker, over = BeepVoice(), FakeSpeaker(held=True), Flag()
    thread = threading.Thread(target=say, args=(["One two three. ", "Four."], voice, speaker, over))
    thread.start()
    assert speaker.finishing.wait(SECONDS)
    assert voice.clauses == ["One two three.", "Four."]
    over.set()
    thread.join(SECONDS)


def test_speech_made_before_the_brain_failed_is_played_to_its_end() -> None:
    def tokens() -> Generator[Token]:
        yield Token("One. ")
        raise ModelError("Out of memory.")

    speaker = FakeSpeaker()
    with working(BeepVoice()) as worker, pytest.raises(ModelError, match="memory"):
        play(Speech(worker, speaker, Timestamps(), never), tokens())
    assert [chunk.text for chunk in speaker.chunks] == ["One."]
    assert speaker.finishing.is_set()


def test_a_lost_speaker_is_raised() -> None:
    speaker = FakeSpeaker()
    speaker.fails = DeviceError("The speaker was unplugged.")
    with pytest.raises(DeviceError, match="unplugged"):
        say("One.", BeepVoice(), speaker)


# What was heard.


def test_a_clause_that_the_voice_had_not_begun_was_not_heard() -> None:
    def broken(clause: str) -> None:
        if "Two" in clause:
            raise RuntimeError

    with working(BeepVoice(broken)) as worker:
        speech = Speech(worker, FakeSpeaker(), Timestamps(), never)
        with pytest.raises(VoiceFailed, match="RuntimeError"):
            play(speech, (Token(text) for text in ("One. ", "Two. ", "Three. ")))
        speech.finish()
    assert speech.heard("One. Two. Three. ") == "One."


@pytest.mark.parametrize(
    ("heard_s", "expected"),
    [(0.02, ""), (0.05, "One"), (0.14, "One two three."), (0.24, "One two three. Four five")],
)
def test_the_heard_part_of_a_cut_off_answer_ends_with_a_whole_word(
    heard_s: float, expected: str
) -> None:
    cut = Flag()
    voice = BeepVoice(lambda clause: cut.set() if clause == "Seven." else None)
    speaker = FakeSpeaker(heard=heard_s)
    reply = ["One two three. ", "Four five six. ", "Seven."]
    speech = say(
        reply,
        voice,
        speaker,
        SimpleNamespace(is_set=lambda: cut.is_set() and len(speaker.chunks) == 3),
    )
    assert speech.heard("".join(reply)) == expected


def test_a_clause_that_was_cancelled_while_it_was_made_was_not_heard_and_is_not_finished() -> None:
    go_on, finished = Flag(), Flag()

    class InParts(BeepVoice):
        def speak(
            self, clause: str, speed: float | None = None, language: str = "en"
        ) -> Iterator[SpeechChunk]:
            yield from super().speak(clause)
            assert go_on.wait(SECONDS)
            yield from super().speak(clause)
            finished.set()

    speaker = FakeSpeaker()
    with working(InParts()) as worker:
        speech = Speech(worker, speaker, Timestamps(), speaker.playing)
        play(speech, (Token(text) for text in ["One two three."]))
        assert len(speaker.chunks) == 1
        go_on.set()
    assert speech.heard("One two three.") == ""
    assert not finished.is_set()
