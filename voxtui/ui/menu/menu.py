"""The menu: its entries by section, and their actions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from textual.app import App
from textual.message import Message

from voxtui.dialogue.events import Loaded
from voxtui.dialogue.listening.level import MONITOR
from voxtui.errors import ConfigError, InputError, ModelError, VoxtuiError
from voxtui.session.local_session import LocalSession
from voxtui.session.user_session import NotAllowed
from voxtui.settings.schema import LANGUAGES, Config
from voxtui.settings.sources import active_config_file, options_of, value_of
from voxtui.ui.keys import shown
from voxtui.ui.menu.palette import Entry, Palette
from voxtui.ui.themes import AUTO, theme_names

if TYPE_CHECKING:
    from voxtui.audio.portaudio import Device, Direction

SPEEDS = {0.8: "slower", 1.0: "normal", 1.2: "faster", 1.5: "fast"}

FORGET_ALL, SAVE_SETTINGS = "forget_all", "save_settings"

LOOK_AGAIN = "Look for devices again"

DEFAULT_DEVICE = "the system's default"

CONVERSATION, MICROPHONE, SPEAKER, VOICE, MODEL, LOOK, SETTINGS = SECTIONS = (
    "Conversation", "Microphone", "Speaker", "Voice", "Model", "Look", "Settings",
)  # fmt: skip

BRAINS = {"auto": "The best for this machine", "voxtral": "Voxtral, on a GPU", "remote": "A server"}
VOICES = {
    "auto": "The best for this machine",
    "embedded": "Small local voice",
    "kokoro": "Kokoro",
    "none": "None, text only",
}
PRESETS = {"balanced": "Answers of usual length", "ultra": "Very short answers"}
PANELS = {"line": "Times in one line", "glance": "Summary of the times", "lab": "Every number"}

NAMES = {
    "audio.input": "Device",
    "audio.output": "Device",
    "voice.engine": "Engine",
    "voice.name": "Name",
    "voice.speed": "Speed",
    "brain.name": "Brain",
    "brain.embedded.model": "Chat",
    "brain.language": "Language",
    "generation.preset": "Answers",
    "ui.panel": "Times",
    "ui.theme": "Theme",
}
"""Config keys whose values the menu folds into one line, and the name of that line."""

Found = TypeVar("Found")


def part_choices(config: Config) -> Iterator[Entry]:
    for name in options_of("voice.engine"):
        yield Entry(VOICE, VOICES.get(name, name), key="voice.engine", value=name)
    if config.voice.engine in ("auto", "embedded"):
        yield from _embedded_voices()
    for speed, about in SPEEDS.items():
        yield Entry(VOICE, f"Speed {speed:g}", about, key="voice.speed", value=speed)
    for name in options_of("brain.name"):
        title, about, question = BRAINS.get(name, name), "", ""
        if name == "embedded":
            title = f"{_chat_title(config)}, on this machine"
        elif name == "remote":
            if not config.brain.remote.hosts:
                continue
            about = f"your voice and words go to {config.brain.remote.hosts}"
        elif name == "voxtral" and (size := _download_of(config)):
            about = f"fetches {size}"
            question = f"Fetch {size} now?"
        yield Entry(MODEL, title, about, question=question, key="brain.name", value=name)
    if config.brain.name in ("auto", "embedded"):
        yield from _chat_models()
        yield from _languages()
    for name in options_of("generation.preset"):
        yield Entry(MODEL, PRESETS.get(name, name), key="generation.preset", value=name)


def _chat_title(config: Config) -> str:
    from voxtui.models.catalogue import CHAT_MODELS
    from voxtui.models.installed import chat_model_name

    name = chat_model_name(config.brain.embedded.model)
    return CHAT_MODELS[name].title if name in CHAT_MODELS else name


def _chat_models() -> Iterator[Entry]:
    """Yield the installed chat models of the embedded brain, if there is a choice."""
    from voxtui.models.catalogue import CHAT_MODELS

    here = [model for model in CHAT_MODELS.values() if model.path.is_file()]
    for model in here if len(here) > 1 else ():
        title = f"Chat: {model.name}"
        yield Entry(MODEL, title, model.note, key="brain.embedded.model", value=model.name)


def _embedded_voices() -> Iterator[Entry]:
    from voxtui.models.catalogue import HIBARI, HIBARI_VOICES

    yield Entry(VOICE, HIBARI, "American, female", key="voice.name", value=HIBARI)
    for name, model in HIBARI_VOICES.items():
        about, question = model.note, ""
        if not model.path.exists():
            size = f"{model.size / 1e6:.0f} MB"
            about, question = f"{about}; fetches {size}", f"Fetch {size} from a hub now?"
        yield Entry(VOICE, name, about, question=question, key="voice.name", value=name)


def _languages() -> Iterator[Entry]:
    """Yield the languages of the embedded brain, if Whisper is installed to recognise them."""
    from voxtui.models.catalogue import KOKORO_VOICES, SMALL_KOKORO, WHISPER

    if not WHISPER.path.exists() or find_spec("ctranslate2") is None:
        return
    spoken = KOKORO_VOICES if SMALL_KOKORO.path.exists() else ()
    for code, name in LANGUAGES.items():
        about = "heard by Whisper, seconds later" if code != "en" else ""
        if code not in spoken and about:
            about += "; text only"
        yield Entry(MODEL, f"Language: {name}", about, key="brain.language", value=code)


def device_choices(found: Sequence[Device]) -> Iterator[Entry]:
    """Yield the devices that a person would choose: no plug-ins, no monitors of a speaker.

    It may ask the sound server, so it runs on a thread of its own.
    """
    from voxtui.audio.portaudio import choices, shown_name

    directions: Sequence[tuple[str, Direction]] = ((MICROPHONE, "input"), (SPEAKER, "output"))
    for section, direction in directions:
        able = [d for d in choices(found) if (d.inputs if direction == "input" else d.outputs)]
        names = [d.name for d in able if d.name != "default"]
        if section == MICROPHONE:
            names = [name for name in names if MONITOR not in name.lower()]
        behind = {shown_name(d, direction) for d in able if d.name == "default"} - {"default"}
        key = f"audio.{direction}"
        yield Entry(section, DEFAULT_DEVICE, "".join(behind), key=key, value="")
        for name in dict.fromkeys(names):
            yield Entry(section, name, key=key, value=name)


def _download_of(config: Config) -> str:
    """Return the size of the download that choosing Voxtral starts; empty for none."""
    from voxtui.models.catalogue import Model, voxtral
    from voxtui.models.installed import voxtral_directory

    model = config.brain.voxtral.model
    repository = voxtral(model)
    if isinstance(repository, Model):
        try:
            voxtral_directory(model)
        except ModelError:
            return f"{repository.size / 1e9:g} GB"
    return ""


class Menu:
    class Chosen(Message):
        """A key of [ui] has a new value."""

        def __init__(self, entry: Entry) -> None:
            super().__init__()
            self.entry = entry

    class Restarted(Message):
        """A choice makes the models load again after a failed start."""

    def __init__(self, app: App[None], session: LocalSession) -> None:
        self._app = app
        self._session = session
        self._choice: Entry | None = None
        self._known: frozenset[str] | None = None
        """the devices before a rescan, until its result is shown"""
        self._microphone: str | None = None

    def open(self, commands: Iterable[Entry], query: str = "") -> None:
        if isinstance(self._app.screen, Palette):
            return
        entries = [*commands, *self.entries()]
        palette = Palette(SECTIONS, entries, self.devices(), NAMES, query)
        self._app.push_screen(palette, self._act)

    async def _act(self, entry: Entry | None) -> None:
        if entry is not None and entry.key:
            self.choose(entry)
        elif entry is not None and entry.action == FORGET_ALL:
            self.forget_all()
        elif entry is not None and entry.action == SAVE_SETTINGS:
            self.save_settings()
        elif entry is not None and entry.action:
            await self._app.run_action(entry.action)

    def entries(self) -> Iterator[Entry]:
        config = self._session.config
        yield Entry(
            MICROPHONE, LOOK_AGAIN, "what was plugged in since the start", action="app.look"
        )
        if self._session.can_choose_parts:
            on, about = config.vad.hands_free, "speak without a key; a pause ends it"
            yield Entry(MICROPHONE, "Hands-free", about, on, key="vad.hands_free", value=not on)
            yield from map(self._marked, part_choices(config))
        keeps, about = bool(config.session.keep), "in a file that only you can read"
        title = "Keep conversations"
        yield Entry(CONVERSATION, title, about, keeps, key="session.keep", value=not keeps)
        title, question = "Forget all conversations", "Erase every stored conversation?"
        action = FORGET_ALL
        yield Entry(CONVERSATION, title, "that were stored", question=question, action=action)
        for name, title in PANELS.items():
            yield self._marked(Entry(LOOK, title, key="ui.panel", value=name))
        for name in theme_names():
            title = "Theme by the terminal" if name == AUTO else f"Theme {name}"
            yield self._marked(Entry(LOOK, title, key="ui.theme", value=name))
        about = "what was chosen, in your config file"
        yield Entry(SETTINGS, "Save settings", about, action=SAVE_SETTINGS)

    async def devices(self) -> Sequence[Entry]:
        if not self._session.can_choose_parts:
            return ()
        return [self._marked(entry) for entry in await in_thread(self._device_choices)]

    def _device_choices(self) -> Sequence[Entry]:
        return list(device_choices(self._session.devices()))

    def choose(self, choice: Entry) -> None:
        failed = self._session.failed is not None
        try:
            self._session.choose(choice.key, choice.value)
        except NotAllowed as refused:
            self._refuse(refused)
            return
        if choice.key.startswith("ui."):
            self._app.post_message(self.Chosen(choice))
        elif choice.key.startswith("session."):
            pass  # the session has reported it
        elif failed:
            self._app.post_message(self.Restarted())
        else:
            self._choice = choice

    def change_failed(self, error: VoxtuiError) -> None:
        self._choice = None
        self._app.notify(f"Nothing was changed. {error}", severity="error")

    def loaded(self, loaded: Loaded) -> None:
        if self._choice is not None and loaded.changed:
            self._app.notify(f"{self._choice.section}: {self._choice.title}.")
            self._choice = None
        if self._known is not None:
            known, self._known = self._known, None
            in_use = loaded.microphone != self._microphone
            self._app.run_worker(self._show_new_devices(known, in_use))

    def rescan(self) -> None:
        self._app.run_worker(self._rescan(), group="rescan", exclusive=True)

    def forget_all(self) -> None:
        self._app.run_worker(self._forget_all(), group="forget", exclusive=True)

    async def _forget_all(self) -> None:
        try:  # a large file takes seconds
            await in_thread(self._session.log.conversations.forget_all)
        except InputError as error:
            self._app.notify(str(error), severity="error")
        else:
            self._app.notify("Every stored conversation was erased.")

    def save_settings(self) -> None:
        try:
            path, keys = self._session.save_settings()
            used = active_config_file()
        except NotAllowed as refused:
            self._refuse(refused)
            return
        except ConfigError as error:
            self._app.notify(str(error), severity="error")
            return
        hidden = "" if used == path else f" ./{used} is used instead of it here."
        self._app.notify(f"Saved {', '.join(keys)} to {path}.{hidden}")

    def _marked(self, entry: Entry) -> Entry:
        return replace(entry, chosen=_in_use(self._session.config, entry.key) == entry.value)

    def _refuse(self, refused: NotAllowed) -> None:
        self._app.notify(str(refused), severity=refused.severity)

    async def _rescan(self) -> None:
        try:
            self._session.check_rescan()
            before = await self._device_titles()
            self._session.rescan_devices()
        except NotAllowed as refused:
            self._refuse(refused)
            return
        self._known, self._microphone = before, self._session.microphone

    async def _show_new_devices(self, known: frozenset[str], in_use: bool) -> None:
        new = sorted(await self._device_titles() - known)
        if new:
            key = shown(self._session.config.ui.keys.menu)
            self._app.notify(f"New: {'; '.join(new)}. {key} uses it.")
        elif not in_use:
            self._app.notify("No other device was found.")

    async def _device_titles(self) -> frozenset[str]:
        found = await in_thread(self._device_choices)
        return frozenset(f"{choice.section}: {choice.title}" for choice in found)


def _in_use(config: Config, key: str) -> Any:
    from voxtui.models.installed import chat_model_name

    value = value_of(config, key)
    if key == "ui.panel" and value == AUTO:
        return "line"
    return chat_model_name(value) if key == "brain.embedded.model" else value


async def in_thread(work: Callable[[], Found]) -> Found:
    """Return the result of `work`, run on a daemon thread. Raises its exception.

    It is no thread of an executor, because this work may hang in a sound server, and the executor
    would then delay quitting.
    """
    result = Future[Found]()
    result.set_running_or_notify_cancel()  # a caller that is cancelled no longer cancels the work

    def run() -> None:
        try:
            result.set_result(work())
        except Exception as error:  # noqa: BLE001 - raised again in the caller
            result.set_exception(error)

    threading.Thread(target=run, name="voxtui-devices", daemon=True).start()
    return await asyncio.wrap_future(result)
