"""One thread, one inbox, one turn at a time.

Frames and commands share the inbox, so a key press is ordered among the samples around it. While a
turn is answered the thread is inside it; what cuts it short is the turn's cancel flag, set by the
front end the moment a key is pressed.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TypeAlias

from voxtui.dialogue.chunker import Chunker
from voxtui.dialogue.commands import (
    Cancel,
    Command,
    DeviceLost,
    NewConversation,
    Quit,
    Release,
    ReplaceParts,
    Replay,
    RescanDevices,
    SendText,
    Talk,
    TurnHandle,
)
from voxtui.dialogue.data import (
    FRAME_SAMPLES,
    FRAME_SECONDS,
    MICROPHONE,
    OWN_SOURCES,
    REPLAY,
    TYPED,
    Frame,
    SpeechChunk,
    Token,
    UserTranscript,
    Utterance,
)
from voxtui.dialogue.events import (
    Captured,
    ChangeFailed,
    Died,
    Event,
    Loaded,
    LoadFailed,
    Loading,
    Notice,
    ReplyText,
    SpokenUpTo,
    State,
    StateChanged,
    TurnFinished,
    TurnStarted,
    UserWords,
)
from voxtui.dialogue.history import Conversation
from voxtui.dialogue.interfaces import Brain, Microphone, Speaker, SpeechDetector, Voice
from voxtui.dialogue.level import describe_overflows, diagnose_level
from voxtui.dialogue.listening import Endpointer, SpeechGate, VoiceBargeIn
from voxtui.dialogue.marks import Mark, Marks, Outcome, Turn
from voxtui.dialogue.parts import FallbackDevices, SoundDevices
from voxtui.dialogue.prefetch import SWITCH_SECONDS, prefetch
from voxtui.dialogue.recording import Recording
from voxtui.dialogue.speech import Speech, VoiceFailed, VoiceWorker
from voxtui.errors import DeviceError, ModelError, ModelLost, RemoteError, VoxtuiError
from voxtui.settings.schema import Config

PREROLL_SECONDS = 0.35
"""Sound kept from before the key: a press is noticed after the first phoneme has begun."""

ECHO_SECONDS = 0.1
"""How long a room goes on sounding after our own speech."""

CUT_OFF_ECHO_SECONDS = 0.05
"""The same after an answer was cut off: no longer, as whoever pressed the key may speak at once."""

SILENT_SOURCE_SECONDS = 0.5
"""A source that delivers no frame for so long after the release is not waited for."""

TAP_SECONDS = 0.25
"""A key that comes up sooner, with nothing said, was a slip, or meant to stop the answer."""

LEAVING_SECONDS = 0.3
"""How long quitting waits for the parts to be closed. The chat model's process is ended sooner."""

CHECK_RATE, CHECK_SECONDS = 48_000, 0.25
"""The tone by which a newly chosen speaker is recognised."""


@dataclass(slots=True)
class Capture:
    """An utterance in the making."""

    ticket: TurnHandle
    began_at: float
    hands_free: bool = False
    recording: Recording = field(default_factory=Recording)
    released_at: float | None = None

    def awaits(self, at: float, turn: int | None) -> bool:
        """Whether a release at `at` that is meant for `turn` is that of this utterance."""
        return at >= self.began_at and turn in (None, self.ticket.number)

    @property
    def tap(self) -> bool:
        """Whether the key was held so briefly that nothing can have been meant."""
        held = (self.released_at or float("inf")) - self.began_at
        return self.ticket.source == MICROPHONE and held < TAP_SECONDS


class Engine:
    """Drives a microphone, a detector, a brain, a voice and a speaker through turns.

    `microphone` None: clips and text only. `speaker` or `voice` None: no sound. `fallback_devices`
    None: no lost device is replaced. `emit` is called on several threads and returns
    at once. `overhearing`: notices on the microphone's thread, which alone uses it, that
    somebody talks over an answer (headphones).
    """

    def __init__(
        self,
        *,
        microphone: Microphone | None,
        speaker: Speaker | None,
        detector: SpeechDetector,
        brain: Brain,
        voice: Voice | None,
        config: Config,
        emit: Callable[[Event], object],
        fallback_devices: FallbackDevices | None = None,
        overhearing: SpeechDetector | None = None,
    ) -> None:
        self._sound = SoundDevices(
            microphone, speaker, fallback_devices, self.push_frame, self._microphone_lost
        )
        self._detector = detector
        self._brain = brain
        self._voice = VoiceWorker(voice, config.voice.timeout_s) if voice else None
        self._config = config
        self._emit = emit
        self._inbox: SimpleQueue[Frame | Command] = SimpleQueue()
        self._conversation = Conversation(config.history)
        self._gate = SpeechGate(config.vad.threshold)
        self._endpointer = Endpointer(config.vad)
        self._overhearing = VoiceBargeIn(overhearing, config.vad) if overhearing else None
        # Hands-free, it is known only after `start_ms` that somebody speaks.
        kept = 1 + config.vad.start_ms / 1000
        self._recent: deque[Frame] = deque(maxlen=int(kept / FRAME_SECONDS))
        self._capture: Capture | None = None
        self._writing: Generator[None, None, None] | None = None
        self._last_said: Utterance | None = None
        self._echo = (0.0, 0.0)
        self._speaker_lost = False
        self._muted = False
        self.state = State.LOADING
        """The current state. Any thread may read it; only the engine sets it."""
        self._answering: TurnHandle | None = None
        self._turns = 0
        self._closing = False
        self._minting = threading.Lock()
        """held until what was minted is in the inbox, so that the newest comes last"""
        self._ticket = self._taken = TurnHandle(0, TYPED)
        """the newest, and the newest that has come out of the inbox"""
        self._excepthook = threading.excepthook
        self._thread = threading.Thread(target=self._run, name="voxtui-engine", daemon=True)

    # Called by the front end.

    def start(self) -> None:
        sys.setswitchinterval(SWITCH_SECONDS)
        threading.excepthook = self._thread_died
        self._thread.start()

    def talk(self, at: float | None = None, source: str = MICROPHONE, paced: bool = True) -> int:
        """The key went down at `at`: cut off any answer and listen to `source`.

        `paced` False: a clip that is not played in real time. Returns the turn's number.
        """
        at = time.monotonic() if at is None else at
        with self._minting:
            ticket = self._mint(source, paced)
            self._inbox.put(Talk(ticket, at))
            return ticket.number

    def release(self, at: float | None = None, turn: int | None = None) -> None:
        """The key came up at `at`: answer what was said until then.

        Nothing happens where another than `turn` is listened to, or one that began later.
        """
        self._inbox.put(Release(time.monotonic() if at is None else at, turn))

    def push_frame(self, frame: Frame) -> None:
        """The next frame of any source. Any thread."""
        if self.state is State.LOADING:
            return  # nobody can answer it, and while models load it would wait with thousands more
        answering, overhearing = self._answering, self._overhearing
        if (
            answering is not None
            and overhearing is not None
            and frame.source == MICROPHONE
            and overhearing.interrupts(frame, answering.number)
        ):
            answering.cancel()
        self._inbox.put(frame)

    def cancel(self, turn: int | None = None) -> None:
        """End `turn`, or the newest turn: abandon its utterance, or silence and end its answer.

        Sets the turn's flag at once and queues the command. Ignored if that turn is over.
        """
        with self._minting:
            handle = self._ticket
            if handle.over or turn not in (None, handle.number):
                return  # each older turn was cancelled when the next one was created
            handle.cancel()
            self._inbox.put(Cancel(handle.number))

    def send_text(self, text: str, at: float | None = None) -> int:
        """Answer `text`, sent at `at` (monotonic seconds). Returns the turn's number."""
        with self._minting:
            ticket = self._mint(TYPED)
            ticket.marks.mark(Mark.RELEASED, at)
            self._inbox.put(SendText(ticket, text))
            return ticket.number

    def replay(self, at: float | None = None) -> None:
        """Answer the last utterance once more, in place of its last answer."""
        with self._minting:
            ticket = self._mint(REPLAY, paced=False)
            ticket.marks.mark(Mark.RELEASED, at)
            self._inbox.put(Replay(ticket))

    def new_conversation(self) -> None:
        with self._minting:
            self._ticket.cancel()
            self._inbox.put(NewConversation())

    def replace_parts(self, change: ReplaceParts) -> None:
        """Use other parts from now on; an answer in progress ends.

        After a start that failed they are loaded in place of the others: brain and voice are new.
        """
        with self._minting:
            self._ticket.cancel()
            self._inbox.put(change)

    def rescan_devices(self) -> None:
        """Find devices that were plugged in; what was asked for is used again if it is back."""
        self._inbox.put(RescanDevices())

    def mute(self, muted: bool) -> None:
        """Turn the voice off, even in the middle of a sentence, or on; text goes on."""
        self._muted = muted

    @property
    def level(self) -> float:
        """The microphone's peak, 0..1."""
        return self._sound.level

    def close(self, seconds: float | None = None) -> None:
        """End the turn in progress, or the loading, close every part, and join the thread.

        Waits no longer than `seconds`: a model that is being loaded cannot be hurried.
        """
        self._closing = True
        self._ticket.cancel()
        self._inbox.put(Quit())
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(seconds)
        threading.excepthook = self._excepthook

    def _thread_died(self, bug: threading.ExceptHookArgs) -> None:
        """On that thread: a bug there, as on the microphone's, ends the app as one here does."""
        if self._closing or bug.exc_value is None:
            self._excepthook(bug)
        else:
            self._emit(Died(bug.exc_value))

    def _mint(self, source: str, paced: bool = True) -> TurnHandle:
        """A ticket of its own for each turn; the one before it is cancelled.

        The caller holds the lock.
        """
        self._ticket.cancel()
        self._turns += 1
        self._ticket = TurnHandle(self._turns, source, paced)
        return self._ticket

    # Runs on the engine thread.

    def _set_state(self, state: State) -> None:
        self.state = state
        self._emit(StateChanged(state))

    def _run(self) -> None:
        try:
            self._load()
            while not self._closing and not isinstance(item := self._next(), Quit):
                if item is not None:
                    self._take(item)
                if self._speaker_lost:
                    self._speaker_lost = False
                    self._report_devices(self._sound.replace_speaker())
        except _Closing:
            pass
        except BaseException as error:  # noqa: BLE001 - the front end raises it
            self._emit(Died(error))
        finally:
            self._close_parts()

    def _next(self) -> Frame | Command | None:
        """The next item. None when a released source has gone silent, which ends the capture.

        While there is none, the last utterance is put into words, a token at a time.
        """
        while self._writing is not None and self._inbox.empty():
            if next(self._writing, "ended") == "ended":
                self._writing = None
        waiting = self._capture is not None and self._capture.released_at is not None
        try:
            return self._inbox.get(timeout=SILENT_SOURCE_SECONDS if waiting else None)
        except Empty:
            self._answer_capture()
            return None

    def _take(self, item: Frame | Command) -> None:
        match item:
            case Frame():
                self._hear(item)
            case Talk(ticket, at):
                self._taken = ticket
                self._abandon_capture()
                self._begin(ticket, at)
            case Release(at, turn):
                if self._capture is not None and self._capture.awaits(at, turn):
                    self._release(at)
            case SendText(ticket, text):
                self._taken = ticket
                self._abandon_capture()
                self._emit(TurnStarted(ticket.number, TYPED, ticket.marks))
                if text := text.strip():
                    self._emit(UserWords(ticket.number, text))
                self._answer(ticket, text or None)
            case Replay(ticket):
                self._taken = ticket
                self._abandon_capture()
                self._replay(ticket)
            case Cancel(turn):
                if self._capture is not None and self._capture.ticket.number == turn:
                    self._abandon_capture()
                    self._endpointer.skip()
            case NewConversation():
                self._abandon_capture()
                self._conversation.forget()
            case ReplaceParts():
                self._abandon_capture()
                self._change(item)
            case RescanDevices():
                self._abandon_capture()
                self._look_again()
            case DeviceLost(opening, sentence):
                self._lose_microphone(opening, sentence)
            case Quit():
                pass

    def _load(self) -> None:
        self._set_state(State.LOADING)
        # Before the models, so that a microphone that hears nothing is noticed while they load.
        for event in self._sound.open():
            self._emit(event)
        try:
            self._detector.probability(_silent_frame())
            if self._overhearing is not None:
                self._overhearing.detector.probability(_silent_frame())
            if self._voice is not None:
                self._voice.warm_up(self._progress)
            self._brain.warm_up(self._progress)
        except RemoteError as error:  # its next turn may find the server
            self._emit(Notice(str(error), "error"))
        except VoxtuiError as error:
            self._sound.close()
            self._emit(LoadFailed(error))
            return
        self._report_parts()
        self._set_state(State.READY)

    def _progress(self, step: str, fraction: float | None) -> None:
        if self._closing:
            raise _Closing
        self._emit(Loading(step, fraction))

    def _report_parts(self, changed: bool = False) -> None:
        self._emit(
            Loaded(
                brain=self._brain.description,
                voice=self._voice.voice.name if self._voice else "none",
                brain_name=self._brain.name,
                microphone=self._sound.microphone.name if self._sound.microphone else None,
                speaker=self._sound.speaker.name if self._sound.speaker else None,
                sends_to=self._brain.sends_to,
                changed=changed,
            )
        )

    def _change(self, change: ReplaceParts) -> None:
        """A part that cannot be used leaves everything as it was."""
        if self.state is State.LOADING:
            self._load_instead(change)
            return
        if self._writing is not None:  # it uses the brain that may go
            self._writing.close()
            self._writing = None
        self._set_state(State.LOADING)
        changed = False
        voice = _worker(change)
        try:
            self._use(change, voice)
            self._config = change.config
            changed = True
        except VoxtuiError as error:
            self._emit(ChangeFailed(error))
            _close(change.microphone, change.speaker, voice, change.brain)
        self._report_parts(changed)
        self._set_state(State.READY)

    def _load_instead(self, change: ReplaceParts) -> None:
        """The start failed: `change` takes the place of what could not be loaded."""
        self._config = change.config
        self._exchange(change, _worker(change))
        self._load()

    def _use(self, change: ReplaceParts, voice: VoiceWorker | None) -> None:
        """Each new part is ready before an old one goes."""
        if change.microphone is not None:
            self._sound.listen(change.microphone)
        if change.speaker is not None:
            change.speaker.open()
            self._sound_check(change.speaker)
        if voice is not None:
            voice.warm_up(self._progress)
        if change.brain is not None:
            change.brain.warm_up(self._progress)
        self._exchange(change, voice)

    def _exchange(self, change: ReplaceParts, voice: VoiceWorker | None) -> None:
        old: list[Part] = [*self._sound.use(change.microphone, change.speaker)]
        if change.voice is not None:
            old.append(self._voice)
            self._voice = voice
        if change.brain is not None:
            old.append(self._brain)
            self._brain = change.brain
        _close(*old)

    def _sound_check(self, speaker: Speaker) -> None:
        """A soft tone: which speaker it is can be heard."""
        import numpy as np

        at = np.arange(round(CHECK_RATE * CHECK_SECONDS)) / CHECK_RATE
        tone = 0.1 * np.sin(2 * np.pi * 660 * at) * np.hanning(len(at))
        marks, ticket = Marks(), self._ticket

        def stopped() -> bool:
            return self._ticket is not ticket

        speaker.play(SpeechChunk(tone.astype(np.float32), CHECK_RATE, ""), marks, stopped)
        speaker.finish(marks, stopped)
        self._remember_echo(marks)

    def _microphone_lost(self, opening: object, sentence: str) -> None:
        """On the microphone's thread."""
        self._inbox.put(DeviceLost(opening, sentence))

    def _close_parts(self) -> None:
        if self._writing is not None:
            self._writing.close()
        self._sound.close()
        _close(self._voice, self._brain)

    def _lose_microphone(self, opening: object, sentence: str) -> None:
        """What was captured is kept and answered."""
        if self.state is State.LOADING or not self._sound.is_in_use(opening):
            return
        self._emit(Notice(sentence, "error"))
        self._report_devices(self._sound.replace_microphone())
        if self._capture is not None and self._capture.ticket.source == MICROPHONE:
            self._release(time.monotonic())
            self._answer_capture()

    def _look_again(self) -> None:
        if self.state is State.LOADING:
            self._refuse()
            return
        self._set_state(State.LOADING)
        self._report_devices(self._sound.rescan_devices())
        self._set_state(State.READY)

    def _report_devices(self, told: list[Event]) -> None:
        """Which are in use now, and `told` of how that came."""
        self._report_parts()
        for event in told:
            self._emit(event)

    # Listening.

    def _hear(self, frame: Frame) -> None:
        if frame.source == MICROPHONE:
            self._sound.delivered()
        capture = self._capture
        if capture is not None and frame.source == capture.ticket.source:
            if not self._is_echo(frame, until=self._echo[1] + CUT_OFF_ECHO_SECONDS):
                self._record(capture, frame)
            return
        if frame.source != MICROPHONE or self._is_echo(frame, until=self._echo[1] + ECHO_SECONDS):
            return
        self._recent.append(frame)
        if capture is None and self._config.vad.hands_free and self.state is not State.LOADING:
            speech = self._gate.verdict(self._detector.probability(frame))
            if self._endpointer.starts(speech):
                self._begin_by_itself(frame.captured_at)

    def _begin_by_itself(self, at: float) -> None:
        """Hands-free, somebody speaks; unless what a key has begun since is still to be taken."""
        with self._minting:
            if self._ticket is not self._taken:
                return
            ticket = self._taken = self._mint(MICROPHONE)
        preroll = PREROLL_SECONDS + self._config.vad.start_ms / 1000
        self._begin(ticket, at, preroll=preroll, hands_free=True)

    def _is_echo(self, frame: Frame, until: float) -> bool:
        """Whether any of `frame` was captured while our own speech could be heard."""
        if frame.source != MICROPHONE or self._config.vad.listen_while_speaking:
            return False
        return self._echo[0] < frame.captured_at and frame.captured_at - FRAME_SECONDS < until

    def _begin(
        self,
        ticket: TurnHandle,
        at: float,
        preroll: float = PREROLL_SECONDS,
        hands_free: bool = False,
    ) -> None:
        if self.state is State.LOADING:
            self._refuse()
            return
        if ticket.source == MICROPHONE and self._sound.microphone is None:
            self._emit(Notice("There is no microphone: type, or let it hear a sample clip."))
            return
        self._capture = capture = Capture(ticket, at, hands_free)
        self._detector.reset()
        self._gate.reset()
        self._emit(TurnStarted(ticket.number, ticket.source, ticket.marks))
        self._set_state(State.LISTENING)
        self._brain.listen(self._conversation.past, capture.recording, ticket.cancelled)
        recent = [f for f in self._recent if f.captured_at > at - preroll]
        self._recent.clear()
        for frame in recent:  # of which a clip takes none
            self._hear(frame)

    def _refuse(self) -> None:
        self._emit(
            Notice("No model is loaded, so there is nobody to answer. `voxtui doctor` helps.")
        )

    def _record(self, capture: Capture, frame: Frame) -> None:
        speech = self._gate.verdict(self._detector.probability(frame))
        capture.recording.append(frame, speech)
        self._brain.wake()
        if capture.released_at is not None:
            if capture.recording.over(capture.released_at):
                self._answer_capture()
        elif capture.recording.seconds >= self._config.audio.max_utterance_s:
            limit = f"{self._config.audio.max_utterance_s:g}"
            self._emit(Notice(f"Stopped listening after {limit} s (audio.max_utterance_s)."))
            self._release(frame.captured_at)
        elif capture.hands_free and self._endpointer.ends(capture.recording):
            self._release(time.monotonic())
            self._answer_capture()

    def _release(self, at: float) -> None:
        capture = self._capture
        if capture is None or capture.released_at is not None:
            return
        capture.released_at = at
        capture.ticket.marks.mark(Mark.RELEASED, at)
        self._keep(capture, capture.recording.cut(at))
        if capture.recording.over(at):
            self._answer_capture()

    def _keep(self, capture: Capture, frames: list[Frame]) -> None:
        """Frames that this capture has no use for; a word may have begun in them."""
        if capture.ticket.source == MICROPHONE:
            self._recent = deque([*frames, *self._recent], self._recent.maxlen)

    def _abandon_capture(self) -> None:
        if self._capture is None:
            return
        ticket, self._capture = self._capture.ticket, None
        ticket.cancel()
        self._finish(ticket, Outcome.CANCELLED)

    # Answering.

    def _answer_capture(self) -> None:
        capture, self._capture = self._capture, None
        if capture is None:
            return
        ticket, recording = capture.ticket, capture.recording
        ticket.marks.mark(Mark.CAPTURED)
        if overflows := sum(frame.overflow for frame in recording.frames):
            self._emit(Notice(describe_overflows(overflows)))
        said = recording.utterance()
        if said is None or recording.speech_seconds < self._config.vad.min_speech_ms / 1000:
            ticket.cancelled.set()
            self._keep(capture, recording.frames)
            if capture.tap:
                self._finish(ticket, Outcome.CANCELLED)
                return
            self._explain_silence(capture)
            self._finish(ticket, Outcome.NO_SPEECH)
            return
        ticket.marks.mark(Mark.SPEECH_ENDED, said.ended_at)
        self._last_said = said
        self._emit(Captured(ticket.number, said))
        self._answer(ticket, said)

    def _replay(self, ticket: TurnHandle) -> None:
        said = self._last_said
        if said is None or self.state is State.LOADING:
            self._emit(Notice("Nothing has been said yet that could be answered again."))
            return
        self._emit(TurnStarted(ticket.number, REPLAY, ticket.marks))
        self._emit(Captured(ticket.number, said))
        ticket.marks.mark(Mark.CAPTURED)
        # The same question after the same history, so that two answers can be compared.
        before = self._conversation.past
        self._conversation.take_back(said)
        past = self._conversation.past
        self._brain.listen(past, Recording(), ticket.cancelled)
        self._answer(ticket, said)
        if self._conversation.past is past:  # nothing was heard in its place
            self._conversation.past = before

    def _explain_silence(self, capture: Capture) -> None:
        frames, microphone = capture.recording.frames, self._sound.microphone
        if capture.ticket.source != MICROPHONE or not frames or microphone is None:
            return
        loudest = max(float(abs(frame.samples).max()) for frame in frames)
        if why := diagnose_level(microphone.name, loudest):
            self._emit(Notice(why))

    def _answer(self, ticket: TurnHandle, said: Utterance | str | None) -> None:
        if self.state is State.LOADING:
            self._refuse()
            self._finish(ticket, Outcome.FAILED, error="No model is loaded.")
            return
        if said is None:
            self._finish(ticket, Outcome.NO_SPEECH)
            return
        self._answering = ticket
        self._set_state(State.THINKING)
        chunker = Chunker(self._config.streaming, self._reply_text(ticket), ticket.cancelled)
        answer = _Answer(ticket, said, self._brain.name, chunker)
        try:
            self._respond(answer)
        except ModelError as error:
            self._finish(ticket, Outcome.FAILED, answer, str(error))
            self._report_loss(error)
            return
        finally:
            self._answering = None
            self._remember_echo(ticket.marks)
        heard = answer.reply if answer.heard is None else answer.heard
        self._conversation.remember(said, answer.words, tuple(answer.tokens), heard)
        if heard != answer.reply:
            self._emit(SpokenUpTo(ticket.number, heard))
        wants_words = self._config.brain.idle_transcript and answer.words is None
        if isinstance(said, Utterance) and wants_words:
            self._writing = self._write_down(ticket, said)
        whole = answer.tokens_ended and heard == answer.reply
        self._finish(ticket, Outcome.ANSWERED if whole else Outcome.CANCELLED, answer)

    def _write_down(self, ticket: TurnHandle, said: Utterance) -> Generator[None, None, None]:
        """Put `said` into words, for the screen and the history; the next key press ends it."""
        words = ""
        try:
            for token in self._brain.transcribe(said, ticket.cancelled):
                words += token.text
                yield
        except ModelError as error:
            self._emit(Notice(f"What you said could not be transcribed: {error}"))
            self._report_loss(error)
            return
        if words.strip() and not ticket.cancelled.is_set():
            self._conversation.put_into_words(said, words.strip())
            self._emit(UserWords(ticket.number, words.strip()))

    def _report_loss(self, error: ModelError) -> None:
        """Another brain may have taken the place of one that is lost."""
        if isinstance(error, ModelLost):
            self._report_parts()

    def _reply_text(self, ticket: TurnHandle) -> Callable[[str], object]:
        return lambda text: self._emit(ReplyText(ticket.number, text))

    def _respond(self, answer: _Answer) -> None:
        """Pull the brain's tokens, speak them, and let the text go on whatever the voice does."""
        with prefetch(self._tokens(answer), "brain") as tokens:
            voice, speaker = self._voice, self._sound.speaker
            if voice is not None and speaker is not None and self._can_speak():
                self._speak(answer, tokens, voice, speaker)
            for _ in tokens:
                pass

    def _tokens(self, answer: _Answer) -> Generator[Token, None, None]:
        """Runs on the brain's thread: show each token the moment it exists, then hand it on."""
        ticket, marks = answer.ticket, answer.ticket.marks
        items = self._brain.reply(self._conversation.past, answer.said, marks, ticket.cancelled)
        at: float | None = None
        try:
            for item in items:
                if ticket.cancelled.is_set():
                    return
                if isinstance(item, UserTranscript):
                    answer.words = item.text
                    if answer.said != item.text:  # typed words have been told
                        self._emit(UserWords(ticket.number, item.text))
                    continue
                at = time.monotonic()
                marks.mark(Mark.FIRST_TOKEN, at)
                answer.tokens.append(item)
                answer.chunker.add(item.text)
                yield item
            if ticket.cancelled.is_set():  # that is why there are no more
                return
            answer.tokens_ended = True
            if at is not None:
                marks.mark(Mark.LAST_TOKEN, at)
        finally:
            answer.chunker.close()

    def _can_speak(self) -> bool:
        if self._voice is not None and self._voice.stuck:
            self._emit(Notice("The voice is still stuck, so this answer is silent."))
            return False
        return not self._muted

    def _speak(
        self, answer: _Answer, tokens: Iterator[Token], voice: VoiceWorker, speaker: Speaker
    ) -> None:
        """Speak `tokens`. A voice or speaker that fails costs the sound of this turn only."""
        ticket = answer.ticket

        def stopped() -> bool:
            return ticket.cancelled.is_set() or self._muted

        def speaking() -> None:
            self._set_state(State.SPEAKING)

        speech = Speech(voice, speaker, ticket.marks, stopped, speaking)
        try:
            speech.play(tokens)
            if ticket.cancelled.is_set():
                answer.heard = speech.heard(answer.reply)
        except VoiceFailed as error:
            self._emit(Notice(f"{error} The answer goes on as text."))
            try:
                speech.finish()
            except DeviceError:
                self._speaker_lost = True
        except DeviceError as error:
            self._speaker_lost = True
            self._emit(Notice(f"{error} The answer goes on as text."))

    def _remember_echo(self, marks: Marks) -> None:
        first, last = marks.at(Mark.FIRST_SOUND), marks.at(Mark.LAST_SOUND)
        if first is not None:
            self._echo = (first, last or time.monotonic())

    def _finish(
        self,
        ticket: TurnHandle,
        outcome: Outcome,
        answer: _Answer | None = None,
        error: str | None = None,
    ) -> None:
        ticket.over = True
        turn = Turn(
            number=ticket.number,
            brain=answer.brain if answer else self._brain.name,
            outcome=outcome,
            marks=ticket.marks.since_release(),
            clip=None if ticket.source in OWN_SOURCES else ticket.source,
            heard=answer.words if answer else None,
            reply=answer.reply if answer else "",
            tokens=len(answer.tokens) if answer else 0,
            speculative_s=ticket.marks.speculative_s,
            gpu_bytes=ticket.marks.gpu_bytes,
            network_s=ticket.marks.network_s,
            paced=ticket.paced,
            error=error,
        )
        self._emit(TurnFinished(turn))
        if self._capture is None:
            self._set_state(State.LOADING if self.state is State.LOADING else State.READY)


@dataclass(slots=True)
class _Answer:
    """A reply in the making: filled by the brain's thread, read by the engine once it has ended."""

    ticket: TurnHandle
    said: Utterance | str
    brain: str
    """the name of the one that was asked: another may have taken its place since"""
    chunker: Chunker
    words: str | None = None
    tokens: list[Token] = field(default_factory=list[Token])
    tokens_ended: bool = False
    heard: str | None = None
    """the part that was heard, where it was spoken and cut off"""

    @property
    def reply(self) -> str:
        return "".join(token.text for token in self.tokens)


class _Closing(Exception):
    """Nobody waits any more for what is being loaded."""


Part: TypeAlias = Microphone | Speaker | VoiceWorker | Brain | None


def _close(*parts: Part) -> None:
    for part in parts:
        if part is not None:
            part.close()


def _worker(change: ReplaceParts) -> VoiceWorker | None:
    if change.voice is None or change.voice == "none":
        return None
    return VoiceWorker(change.voice, change.config.voice.timeout_s)


def _silent_frame() -> Frame:
    import numpy as np

    return Frame(np.zeros(FRAME_SAMPLES, np.float32), 0.0)
