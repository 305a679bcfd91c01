"""The commands of a person on this machine: talk, choose devices and models, play clips, save."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from msgspec.structs import replace

from voxtui.dialogue import engine_commands as commands
from voxtui.dialogue import events
from voxtui.dialogue.data import MICROPHONE
from voxtui.dialogue.engine import LEAVING_SECONDS
from voxtui.dialogue.events import State
from voxtui.dialogue.history.attachments import Attachment, attached_tokens
from voxtui.dialogue.history.history import ConversationLeft
from voxtui.errors import DeviceError, ModelMissing, VoxtuiError, strip_control_characters
from voxtui.session.clip_player import ClipPlayer
from voxtui.session.conversation_lifecycle import Conversation
from voxtui.session.user_session import (
    ClipEnded,
    MakeEngine,
    NotAllowed,
    UserSession,
    UserSessionEvent,
)
from voxtui.settings.files import read_file
from voxtui.settings.paths import notes_file
from voxtui.settings.save import save_values
from voxtui.settings.sources import with_value
from voxtui.storage.conversation_database import Conversations, history_file
from voxtui.storage.conversation_writer import ConversationWriter, StoredConversation
from voxtui.storage.derived_latencies import times_sentence
from voxtui.storage.device_offset import device_offset
from voxtui.storage.saved_session import Record, saved_sessions

if TYPE_CHECKING:
    from voxtui.audio.portaudio import Device
    from voxtui.dialogue.fallbacks import Fallbacks
    from voxtui.dialogue.protocols import Brain, Microphone, Past, Speaker, Voice
    from voxtui.settings.schema import Config

MODEL_KEYS = frozenset((
    "brain.name", "brain.embedded.model", "brain.language", "generation.preset", "voice.engine",
    "voice.name",
))  # fmt: skip
"""Config keys whose new value loads a model."""


ENDS_TALKING = (
    commands.SendText, commands.Redo, commands.Cancel, commands.NewConversation,
    commands.ReplaceComponents, commands.RescanDevices, commands.Speak,
)  # fmt: skip
"""Commands that end a playing clip and a held key."""

Notify: TypeAlias = Callable[[str], object]
"""Shows a sentence to the user. Any thread."""


class Factories(Protocol):
    """Makes single components for a configuration. Each method raises VoxtuiError.

    `notify` shows a sentence to the user, from any thread. `reload` makes a brain and a voice after
    a failed start, and may download the chat model if `download_chat`.
    """

    def microphone(self, config: Config) -> Microphone: ...
    def speaker(self, config: Config) -> Speaker: ...
    def brain(self, config: Config, notify: Notify) -> Brain | Fallbacks[Brain]: ...
    def voice(self, config: Config) -> Voice | Fallbacks[Voice] | None: ...
    def reload(
        self, config: Config, notify: Notify, download_chat: bool
    ) -> commands.ReplaceComponents: ...
    def devices(self) -> Sequence[Device]: ...
    def cancels_echo(self, config: Config) -> bool: ...


class LocalSession(UserSession):
    def __init__(
        self,
        make_engine: MakeEngine,
        deliver: Callable[[UserSessionEvent], object],
        config: Config,
        clips: Sequence[tuple[str, Path]] = (),
        factories: Factories | None = None,
    ) -> None:
        super().__init__(make_engine, deliver)
        self.config = config
        """the settings in use, or, after a failed start, those being tried"""
        self.clips = ClipPlayer(clips, self, config.audio.max_utterance_s, deliver)
        self.record = Record(datetime.now())
        self.microphone: str | None = ""
        """the name of the microphone; empty if not known yet, None if there is none"""
        self.talking: int | None = None
        """the turn for which a key or a mouse button is held"""
        self.turn: events.TurnStarted | None = None
        """the newest turn that the engine began"""
        self.queued: deque[str] = deque()
        self.muted = False
        self.chosen: dict[str, Any] = {}
        """values in use, by key, that the user chose here and has not saved"""
        self._trying: dict[str, Any] = {}
        """values, by key, whose components are being loaded"""
        self.models_are_new = False
        """whether the newest Loaded brought new models"""
        self._loaded: events.Loaded | None = None
        self._factories = factories
        self._may_download = False
        self._deliver = deliver
        self.log = ConversationWriter(
            Conversations(history_file()), lambda why: deliver(events.Notice(why, "error"))
        )
        self.conversation = Conversation(self, self.record, self.log)

    def start(self, past: Past = (), stored: StoredConversation | None = None) -> None:
        self.log.current = stored or self.log.current
        if self.config.session.keep:
            self.log.begin()
        super().start(past)
        self._attach_notes()

    def close(self, seconds: float | None = None) -> None:
        super().close(seconds)
        self.conversation.store_rest()
        self.log.close(seconds)

    # Events.

    def take(self, event: UserSessionEvent) -> None:
        """Update the state by an event; send the next queued text once the engine is ready."""
        if isinstance(event, ClipEnded):
            self.clips.take(event)
            return
        super().take(event)
        self.record.take(event)
        if isinstance(event, events.TurnFinished | events.UserWords):
            self.conversation.store()
        match event:
            case events.MicrophoneOpened(name):
                self.microphone = name
            case events.Loaded():
                self._take_loaded(event)
            case events.MicrophoneLost():
                self.microphone = self.talking = None
            case ConversationLeft(past):
                self.conversation.store_left(past)
            case events.LoadFailed():
                self.microphone, self._loaded = "", None
            case events.ChangeFailed():
                self._trying.clear()
            case events.TurnStarted():
                self.turn = event
                if event.turn > self.dropped_turn:
                    self.conversation.note_turn()
            case events.StateChanged(State.THINKING) if (
                self.turn and self.talking == self.turn.turn
            ):
                self.talking = None
            case events.StateChanged(State.READY) if self.state is State.READY and not self._trying:
                if self.queued and self.talking is None and not self.busy:
                    self.say(self.queued.popleft())
            case events.TurnFinished(turn) if self.talking == turn.number:
                self.talking = None
            case _:
                pass

    @property
    def busy(self) -> bool:
        return super().busy or self.clips.playing

    def post(self, command: commands.Command) -> int:
        """Post `command` to the engine. One that ends a turn also ends a clip and a held key."""
        if isinstance(command, ENDS_TALKING):
            if isinstance(command, commands.NewTurn):
                self._require_model()
            self.clips.stop()
            self.talking = None
        return super().post(command)

    # Talking.

    @property
    def listens_by_itself(self) -> bool:
        """True while an utterance is being recorded that began hands-free."""
        return (
            self.config.vad.hands_free
            and self.talking is None
            and self.state is State.LISTENING
            and self.turn is not None
            and self.turn.source == MICROPHONE
        )

    @property
    def hears_over_an_answer(self) -> bool:
        """True if speech ends an answer: with headphones, or if the echo is removed."""
        removed = self._factories is not None and self._factories.cancels_echo(self.config)
        return self.config.vad.hands_free and (removed or self.config.vad.listen_while_speaking)

    def begin_talking(self, at: float) -> None:
        """Begin an utterance, or end one that began hands-free. Raises NotAllowed."""
        if self.listens_by_itself and self.turn is not None:
            self.post(commands.Release(at, self.turn.turn))
            return
        self._require_model()
        if self.microphone is None:
            count = len(self.clips.names)
            others = f"Type, or play a sample clip (1 to {count})." if count else "Type instead."
            raise NotAllowed(f"There is no microphone. {others}")
        self.clips.stop()
        self.talking = self.post(commands.Talk(at))

    def end_talking(self, at: float) -> None:
        """End the utterance that a key or button began, if there is one."""
        if self.talking is not None:
            self.post(commands.Release(at, self.talking))
            self.talking = None

    @property
    def can_stop(self) -> bool:
        return self.busy or self.state in (State.LISTENING, State.THINKING, State.SPEAKING)

    def stop(self) -> bool:
        """Discard the utterance or end the answer. Return False if there is neither."""
        if not self.can_stop:
            return False
        self.post(commands.Cancel())
        return True

    def say(self, text: str, at: float | None = None) -> int | None:
        """Answer `text`; while the models are being loaded, queue it and return None."""
        if self.failed or self._loads:
            self.queued.append(text)
            return None
        return self.post(commands.SendText(text, at))

    def answer_again(self, at: float | None = None, turn: int | None = None) -> None:
        """Answer `turn`, or the newest turn, again; after a failed start, retry the start.

        Raises NotAllowed, VoxtuiError.
        """
        if self.failed:
            self.retry()
            return
        self._require_model()
        if turn is None:
            answered = (
                n for n, t in self.conversation.turns if t.result and (t.utterance or t.words)
            )
            turn = next(answered, None)
        if turn is not None:
            self.post(commands.Redo(turn, at=at))
        elif words := self.conversation.earlier_words:
            self.post(commands.SendText(words, at))
        else:
            raise NotAllowed("There is no turn to answer again yet.")

    def words_of(self, turn: int | None = None) -> tuple[int, str]:
        """Return the number and the user's words of `turn`, or of the newest turn with words.

        The number is 0 for a turn of an earlier session. Raises NotAllowed.
        """
        known = ((n, t.words) for n, t in self.conversation.turns if t.words and turn in (None, n))
        if (newest := next(known, None)) is None:
            if turn is None and (words := self.conversation.earlier_words):
                return 0, words
            if turn is None:
                raise NotAllowed("There are no words to correct yet.")
            raise NotAllowed("The words of that turn are not known, so they cannot be corrected.")
        return newest

    def correct(self, turn: int, text: str, at: float | None = None) -> int:
        """Answer `text` in place of the newest turn; for an older `turn`, answer at the end.

        Returns the number of the new turn. Raises NotAllowed.
        """
        return self.post(commands.Redo(turn, text, at) if turn else commands.SendText(text, at))

    def new_conversation(self) -> None:
        self.conversation.begin_new()
        self._attach_notes()

    def _attach_notes(self) -> None:
        """Attach the user's notes to the new conversation, if they are enabled."""
        tools = self.config.tools
        if not (tools.enabled and tools.read_notes):
            return
        file = notes_file(tools.notes_file)
        try:
            text = read_file(file, -1, missing=b"").decode(errors="replace")
        except OSError as error:
            self._notify(f"{file}: cannot be read: {error.strerror}.")
            return
        if text.strip():
            notes = Attachment("your notes", strip_control_characters(text), newest_last=True)
            self.post(commands.Attach(notes))

    @property
    def text_room(self) -> tuple[int, int]:
        """The maximum tokens of attached texts, and how many of them are left."""
        brain = self._loaded.brain_name if self._loaded else self.config.brain.name
        most = self.config.input.tokens(brain)
        return most, most - attached_tokens(self.engine.past)

    def play_clip(self, number: int) -> str:
        self.clips.check(number)
        self._require_model()
        self.talking = None
        self.clips.play(number)
        return self.clips.names[number - 1]

    def toggle_mute(self) -> bool:
        self.muted = not self.muted
        self.engine.post(commands.Mute(self.muted))
        return self.muted

    @property
    def times(self) -> str:
        """The times of the newest answer in a sentence."""
        results = (turn.result for turn in reversed(self.record.finished))
        if not (turn := next((result for result in results if result and result.reply), None)):
            return "No numbers yet."
        targets = self.config.targets.resolved(turn.brain)
        offset = device_offset(self._loaded.speaker if self._loaded else None)
        return times_sentence(turn, targets, offset)

    def save(self) -> Path:
        """Write the session to disk, which may take seconds, and return its folder. Any thread.

        Raises NotAllowed, InputError.
        """
        if not self.record.finished:
            raise NotAllowed("There is nothing to save yet.")
        return self.record.save(saved_sessions(self.config.ui.save_dir))

    # Models and devices.

    def retry(self) -> None:
        """Load the models again after a failed start. Raises VoxtuiError, stored in `failed`."""
        try:
            self._start_again(self.config)
        except VoxtuiError as error:
            self.failed = error
            raise

    def fetch(self) -> None:
        """Allow the download of the missing chat model, and retry. Raises VoxtuiError."""
        if not isinstance(self.failed, ModelMissing):
            raise NotAllowed("There is no model to fetch.")
        self._may_download = True
        self.retry()

    def devices(self) -> Sequence[Device]:
        """List every device; empty without a sound system.

        It initialises PortAudio and may block: call it on a thread of its own.
        """
        try:
            return self._factories.devices() if self._factories else ()
        except DeviceError:
            return ()

    def check_rescan(self) -> None:
        """Raise NotAllowed during a turn, because a rescan closes the devices."""
        self._require_model()
        if self.state is not State.READY:
            raise NotAllowed("Devices can be searched for only between turns.", "information")

    def rescan_devices(self) -> None:
        self.check_rescan()
        self.post(commands.RescanDevices())

    @property
    def can_choose_parts(self) -> bool:
        return self._factories is not None

    def choose(self, key: str, value: Any) -> None:
        """Use this value of a config key from now on. Raises NotAllowed.

        A value that needs another component takes effect with the next Loaded.
        """
        try:
            config = with_value(self.config, key, value)
            if key.startswith("ui."):
                self.config, self.chosen[key] = config, value
            elif key == "session.keep":
                self._store_conversations(value, config)
            elif self.failed:
                self._start_again(config, **_device(self._factories, key, config))
                self.config, self._trying[key] = config, value
            else:
                self._require_model()
                change = _change(self._factories, key, config, self.config, self._notify)
                self._trying[key] = value
                self.post(change)
        except VoxtuiError as error:
            raise NotAllowed(str(error), "error") from error

    def save_settings(self) -> tuple[Path, Sequence[str]]:
        """Write the values chosen here. Return the user's config file and the written keys.

        Raises NotAllowed, ConfigError.
        """
        if not self.chosen:
            raise NotAllowed("No setting was changed here.", "information")
        path, keys = save_values(self.chosen), tuple(self.chosen)
        self.chosen.clear()
        return path, keys

    @property
    def _loads(self) -> bool:
        return super()._loads or bool(self._trying)  # the engine may not have taken the command

    def _store_conversations(self, stores: bool, config: Config) -> None:
        """Begin or stop storing conversations, and tell the user.

        The choice is saved at once, because it matters at the next start. The engine gets `config`,
        because it answers questions about what is stored. Raises ConfigError.
        """
        save_values({"session.keep": stores})
        self.config = config
        if not self.failed and self.state is not State.LOADING:
            self.engine.post(commands.ReplaceComponents(config))
        if stores:
            self.log.begin()
            self.conversation.store()
            self._notify(f"Conversations are stored from now on: {self.log.conversations.file}")
        else:
            self.log.close(LEAVING_SECONDS)
            self._notify(
                "Conversations are no longer stored. `voxtui history --forget-all` erases old ones."
            )

    def _start_again(self, config: Config, **devices: Any) -> None:
        """Load the models of `config` after a failed start. Raises VoxtuiError."""
        assert self._factories is not None
        change = self._factories.reload(config, self._notify, self._may_download)
        self.failed = None
        self.engine.post(replace(change, **devices))

    def _take_loaded(self, loaded: events.Loaded) -> None:
        before, self._loaded = self._loaded, loaded
        self.microphone = loaded.microphone
        adopted = self._trying if loaded.changed or before is None else {}
        for key, value in adopted.items():
            self.config = with_value(self.config, key, value)
        self.chosen.update(adopted)
        # A lost brain was replaced if the name changed; a voice at another speed is the same model.
        self.models_are_new = (
            before is None
            or (loaded.brain, loaded.voice) != (before.brain, before.voice)
            or not MODEL_KEYS.isdisjoint(adopted)
        )
        if adopted:
            self._trying.clear()

    def _notify(self, sentence: str) -> None:
        self._deliver(events.Notice(sentence, "information"))


def _change(
    factories: Factories | None, key: str, config: Config, before: Config, notify: Notify
) -> commands.ReplaceComponents:
    """Make the components that a new value of `key` needs. Raises VoxtuiError."""
    assert factories is not None
    section, parts = key.partition(".")[0], _device(factories, key, config)
    if section == "vad" and factories.cancels_echo(config) != factories.cancels_echo(before):
        parts["microphone"] = factories.microphone(config)
    if section not in ("audio", "vad", "voice"):
        parts["brain"] = factories.brain(config, notify)
    if section == "voice" or key == "brain.language":
        parts["voice"] = factories.voice(config) or "none"
    return commands.ReplaceComponents(config, **parts)


def _device(factories: Factories | None, key: str, config: Config) -> dict[str, Any]:
    assert factories is not None
    if key == "audio.input":
        return {"microphone": factories.microphone(config)}
    return {"speaker": factories.speaker(config)} if key == "audio.output" else {}
