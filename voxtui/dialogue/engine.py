"""The engine: what any thread may ask of the conversation, and the thread that does it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

from voxtui.dialogue.attachments import Attachment
from voxtui.dialogue.commands import (
    Attach,
    DeviceLost,
    Edit,
    NewConversation,
    Quit,
    RecallConversation,
    Redo,
    ReplaceComponents,
    RescanDevices,
    SendText,
    Talk,
    Truncate,
    TurnHandle,
    UseReplyOptions,
)
from voxtui.dialogue.data import MICROPHONE, Frame
from voxtui.dialogue.engine_loop import EngineLoop
from voxtui.dialogue.events import Died, Event, State
from voxtui.dialogue.fallbacks import Fallbacks
from voxtui.dialogue.history import History
from voxtui.dialogue.inbox import Inbox, now
from voxtui.dialogue.listening import VoiceBargeIn
from voxtui.dialogue.prefetch import SWITCH_SECONDS
from voxtui.dialogue.protocols import (
    Brain,
    Microphone,
    Past,
    ReplyOptions,
    Skills,
    Speaker,
    SpeechDetector,
    Voice,
)
from voxtui.dialogue.sound_devices import FallbackDevices, SoundDevices
from voxtui.dialogue.timestamps import Milestone
from voxtui.errors import VoxtuiError
from voxtui.settings.schema import Config, VadConfig

LEAVING_SECONDS = 0.3
"""Maximum wait for the parts when quitting. The chat model's process ends within it."""

OUR_THREADS = "voxtui-"
"""Prefix of the names of all our threads."""


class Engine:
    """Drives a microphone, a detector, a brain, a voice and a speaker through turns.

    `microphone` None: clips and text only. `speaker` or `voice` None: no sound. `fallback_devices`
    None: a lost device is not replaced. `emit` is called on several threads and returns at once.
    `overhearing` detects speech over an answer, on the microphone's thread: with headphones, or in
    frames without an echo.
    `sound_system()` returns a value that changes when sound devices come or go.
    `skills` None: the brain answers everything. `local` False: it is one of several in a server, so
    it answers nothing about this machine, and bugs of other threads are not its own. `captions`:
    report the words while they are spoken.
    """

    def __init__(
        self,
        *,
        microphone: Microphone | None,
        speaker: Speaker | None,
        detector: SpeechDetector,
        brain: Brain | Fallbacks[Brain],
        voice: Voice | Fallbacks[Voice] | None,
        config: Config,
        emit: Callable[[Event], object],
        fallback_devices: FallbackDevices | None = None,
        overhearing: SpeechDetector | None = None,
        sound_system: Callable[[], object] = lambda: None,
        skills: Skills | None = None,
        local: bool = True,
        captions: bool = False,
    ) -> None:
        self._emit = emit
        self._inbox = Inbox()
        devices = SoundDevices(
            microphone,
            speaker,
            fallback_devices,
            self.push_frame,
            self._microphone_lost,
            sound_system,
        )
        self._barge_in = VoiceBargeIn(overhearing, config.vad) if overhearing else None
        self._loop = EngineLoop(
            self._inbox,
            devices,
            detector,
            brain,
            voice,
            config,
            emit,
            self._barge_in,
            skills,
            local,
            captions,
        )
        self._local = local
        self._closing_at: float | None = None
        """when `close` was called first (monotonic seconds)"""
        self._excepthook = threading.excepthook
        self._thread = threading.Thread(target=self._loop.run, name="voxtui-engine", daemon=True)

    # Called by the front end, on any thread.

    @property
    def state(self) -> State:
        """The current state. Only the engine's thread changes it."""
        return self._loop.turns.state

    @property
    def past(self) -> Past:
        """The past turns, as the brain gets them."""
        return self._loop.history.past

    def resume(self, past: Past) -> None:
        """Begin with these past turns. Before `start`."""
        self._loop.history.past = tuple(past)

    def start(self) -> None:
        """Load the parts on the engine's thread. Raises VoxtuiError if no thread can be started."""
        sys.setswitchinterval(SWITCH_SECONDS)
        try:
            self._thread.start()
        except RuntimeError as error:
            sentence = f"The system refused to start a thread ({error}): memory or process limit."
            raise VoxtuiError(sentence, "`ulimit -v` and `ulimit -u` show the limits.") from error
        if self._local:
            threading.excepthook = self._thread_died

    def talk(self, at: float | None = None, source: str = MICROPHONE, paced: bool = True) -> int:
        """Cut off any answer and listen to `source` from `at` (monotonic seconds) on.

        `paced` False: its frames come faster than in real time. Returns the turn's number.
        """
        handle, at = TurnHandle(0), now(at)
        number = self._inbox.put_turn(handle, Talk(handle, at, source, paced))
        self._loop.components.devices.attend(True)  # here, because the engine's thread may be busy
        return number

    def release(
        self, at: float | None = None, turn: int | None = None, answers: bool = True
    ) -> None:
        """End the recording at `at` (monotonic seconds) and answer it.

        Ignored if `turn` is not the turn being recorded, or if the recording began after `at`.
        `answers` False: the utterance enters the history at once, and `answer` may follow. All of
        its frames must have been pushed.
        """
        self._inbox.put_release(now(at), turn, answers)

    def answer(self, options: ReplyOptions | None = None) -> int | None:
        """Answer the history as it stands: what was kept last, else without being asked.

        `options`: of this answer only. Returns the number of the turn, which is that of the
        utterance if it was kept just before. Returns None, and answers nothing, while the user is
        heard to speak.
        """
        return self._inbox.put_answer(options)

    def use_manner(
        self, options: ReplyOptions, answers: bool = True, vad: VadConfig | None = None
    ) -> None:
        """Answer in this manner from now on, and read its instruction at once.

        `answers` False: hands-free speech enters the history without an answer. `vad`: listen in
        another way; None: as before.
        """
        self._inbox.put(UseReplyOptions(options, answers, vad))

    def edit(self, change: Callable[[History], object]) -> None:
        """Change the history once no turn is in progress. Runs `change` on the engine's thread."""
        self._inbox.put(Edit(change))

    def truncate(self, turn: int, seconds: float) -> None:
        """Keep what was heard in the first `seconds` of the speech of a finished turn."""
        self._inbox.put(Truncate(turn, seconds))

    def push_frame(self, frame: Frame) -> None:
        """Take the next frame of any source."""
        if self.state is State.LOADING and not self._inbox.turn_waits:
            return  # no turn uses it, and thousands of frames may arrive during the loading
        answering, barge_in = self._inbox.answering, self._barge_in
        if (
            answering is not None
            and barge_in is not None
            and self._loop.listener.may_interrupt(frame)
            and barge_in.interrupts(frame, answering.number)
        ):
            answering.cancel()
        self._inbox.put(frame)

    def cancel(self, turn: int | None = None) -> None:
        """End `turn`, or the newest turn: abandon its utterance, or silence and end its answer.

        Sets the turn's flag at once and queues the command. Ignored if that turn is over.
        """
        if not self.silence():
            self._inbox.cancel(turn)

    def silence(self) -> bool:
        """End the sentence of a timer or reminder. Return False if none is spoken. Any thread."""
        return self._inbox.silence()

    def send_text(self, text: str, at: float | None = None) -> int:
        """Answer `text`, sent at `at` (monotonic seconds). Returns the turn's number."""
        handle = TurnHandle(0)
        handle.timestamps.record(Milestone.RELEASED, at)
        typing = self._inbox.typing
        begun = typing.begun if typing.text else None
        return self._inbox.put_turn(handle, SendText(handle, text, begun))

    def attach(self, attachment: Attachment) -> None:
        """Add a text to the conversation. The brain reads it before the next turn."""
        self._inbox.put(Attach(attachment))

    def typing(self, text: str) -> None:
        """Let the brain prepare for `text`, which is being typed; empty: for none."""
        self._inbox.put_typing(text.strip(), self._loop.turns.clock.local_time)

    def redo(self, turn: int, text: str | None = None, at: float | None = None) -> int:
        """Answer the input of `turn` once more, or `text` instead of it.

        The newest exchange of the history is replaced; an older one is asked again at the end.
        `at`: the time of the request (monotonic seconds). Returns the new turn's number.
        """
        handle = TurnHandle(0)
        handle.timestamps.record(Milestone.RELEASED, at)
        return self._inbox.put_turn(handle, Redo(handle, turn, text))

    def new_conversation(self) -> None:
        """End the answer in progress and empty the history."""
        self._inbox.put_after_cancel(NewConversation())

    def recall_conversation(self) -> None:
        """Bring back the history that `new_conversation` emptied, if no turn was added since."""
        self._inbox.put(RecallConversation())

    def replace_parts(self, change: ReplaceComponents) -> None:
        """End the answer in progress and use other parts.

        After a start that failed, brain and voice of `change` are loaded in place of the others.
        """
        self._inbox.put_after_cancel(change)

    def rescan_devices(self) -> None:
        """Find devices that were plugged in; use the wanted ones if they are back."""
        self._inbox.put(RescanDevices())

    def mute(self, muted: bool) -> None:
        """Turn the voice off, even in the middle of a sentence, or on. Text goes on."""
        self._loop.components.muted = muted

    @property
    def level(self) -> float:
        """The microphone's peak, 0..1."""
        return self._loop.components.devices.level

    @property
    def seconds_left(self) -> float | None:
        """Seconds until `audio.max_utterance_s` ends the recording; None: there is none."""
        return self._loop.listener.seconds_left

    def close(self, seconds: float | None = None) -> None:
        """End the turn in progress, or the loading; close every part and join the thread.

        Waits `seconds` at most, because loading a model cannot be interrupted. They count from the
        first call, so that a front end may begin with 0 and leave its screen meanwhile.
        """
        if self._closing_at is None:
            self._closing_at = time.monotonic()
            self._loop.components.closing = True
            self._inbox.put_after_cancel(Quit())
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            waited = time.monotonic() - self._closing_at
            self._thread.join(None if seconds is None else max(0.0, seconds - waited))
        if self._local:
            threading.excepthook = self._excepthook

    def _thread_died(self, bug: threading.ExceptHookArgs) -> None:
        """Report an exception of one of our threads; it ends the program. Runs on that thread."""
        ours = bug.thread is not None and bug.thread.name.startswith(OUR_THREADS)
        if self._loop.components.closing or bug.exc_value is None or not ours:
            self._excepthook(bug)
        else:
            self._emit(Died(bug.exc_value))

    def _microphone_lost(self, opening: object, message: str) -> None:
        self._inbox.put(DeviceLost(opening, message))
