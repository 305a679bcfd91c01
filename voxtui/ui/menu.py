"""The command palette: its entries and their actions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from textual.app import App
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.fuzzy import Matcher

from voxtui.controls import LocalControls, Refused, Severity
from voxtui.dialogue.events import ChangeFailed, Event, Loaded
from voxtui.errors import ConfigError, ModelError
from voxtui.settings.schema import Config
from voxtui.settings.sources import found_file, options_of, value_of
from voxtui.ui.themes import theme_names

if TYPE_CHECKING:
    from voxtui.audio.devices import Device

SPEEDS = (0.8, 1.0, 1.2, 1.5)

LOOK_AGAIN = "Look for devices again"

DEVICES_SECONDS = 0.5
"""The rest of the menu waits this long for the list of devices."""

DEFAULT_DEVICE = "the system's default"

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Choice:
    """One value for one config key."""

    title: str
    key: str
    value: Any


@dataclass(frozen=True, slots=True)
class MenuEntry:
    title: str
    about: str
    act: Callable[[], object]


def part_choices(config: Config) -> Iterator[Choice]:
    """Yield the brains, voices, speeds and presets to choose from."""
    for name in options_of("brain.name"):
        host = config.brain.remote.hosts if name == "remote" else ""
        if host or name != "remote":
            about = f", your voice goes to {host}" if host else ""
            about += _download_of(config) if name == "voxtral" else ""
            yield Choice(f"Brain: {name}{about}", "brain.name", name)
    for name in options_of("voice.engine"):
        yield Choice(f"Voice: {name}", "voice.engine", name)
    for speed in SPEEDS:
        yield Choice(f"Speed of the voice: {speed:g}", "voice.speed", speed)
    for name in options_of("generation.preset"):
        yield Choice(f"Preset: {name}", "generation.preset", name)


def device_choices(found: Sequence[Device]) -> Iterator[Choice]:
    for kind, key in (("Microphone", "audio.input"), ("Speaker", "audio.output")):
        able = [d.name for d in found if (d.inputs if key == "audio.input" else d.outputs)]
        for name in dict.fromkeys(("", *able)):
            yield Choice(f"{kind}: {name or DEFAULT_DEVICE}", key, name)


def _download_of(config: Config) -> str:
    """Say how much choosing Voxtral would download."""
    from voxtui.models.catalogue import Model, voxtral
    from voxtui.models.installed import voxtral_directory

    model = config.brain.voxtral.model
    repository = voxtral(model)
    if isinstance(repository, Model):
        try:
            voxtral_directory(model)
        except ModelError:
            return f", fetches {repository.size / 1e9:g} GB"
    return ""


class Menu:
    """Offers the choices, and applies one through the controls."""

    def __init__(
        self,
        app: App[None],
        controls: LocalControls,
        tell: Callable[[str, Severity], object],
        restarted: Callable[[], object],
        use_theme: Callable[[str], object],
        refuse: Callable[[Refused], object],
    ) -> None:
        """`restarted` is called when a choice makes the models load again after a failed start."""
        self._app = app
        self._controls = controls
        self._tell = tell
        self._restarted = restarted
        self._use_theme = use_theme
        self._refuse = refuse
        self._choice: Choice | None = None
        """the choice whose parts are being loaded"""
        self._known: frozenset[str] | None = None
        """the devices before a rescan, until its result is shown"""
        self._microphone: str | None = None
        """the microphone before a rescan"""

    def provider(self) -> type[Provider]:
        """Return the palette's provider, which serves these entries."""
        menu = self

        class BoundProvider(MenuProvider):
            source = menu

        return BoundProvider

    def entries(self) -> Iterator[MenuEntry]:
        """Yield every entry but the devices."""
        yield MenuEntry(
            "Save settings", "write what was chosen to your config file", self.save_settings
        )
        yield MenuEntry(LOOK_AGAIN, "offers what was plugged in since the start", self.rescan)
        if self._controls.can_choose_parts:
            yield from map(self._entry, part_choices(self._controls.config))
        for name in theme_names(self._app.available_themes):
            yield self._entry(Choice(f"Theme: {name}", "ui.theme", name))

    async def devices(self) -> Sequence[MenuEntry]:
        """List the microphones and speakers, on a thread of its own."""
        if not self._controls.can_choose_parts:
            return ()
        found = await in_thread(self._controls.devices)
        return [self._entry(choice) for choice in device_choices(found)]

    def choose(self, choice: Choice) -> None:
        """Use a value in this session. The parts it needs are loaded first."""
        failed = self._controls.failed is not None
        try:
            self._controls.choose(choice.key, choice.value)
        except Refused as refused:
            self._refuse(refused)
            return
        if choice.key == "ui.theme":
            self._use_theme(choice.value)
        elif failed:
            self._restarted()
        else:
            self._choice = choice

    def take(self, event: Event) -> None:
        """Show the result of a choice or a rescan."""
        match event:
            case ChangeFailed(error):
                self._choice = None
                self._tell(f"Nothing was changed. {error}", "error")
            case Loaded():
                if self._choice is not None and event.changed:
                    self._tell(f"{self._choice.title}.", "information")
                    self._choice = None
                if self._known is not None:
                    known, self._known = self._known, None
                    in_use = event.microphone != self._microphone
                    self._app.run_worker(self._show_new_devices(known, in_use))
            case _:
                pass

    def rescan(self) -> None:
        """Find devices that were plugged in since PortAudio began."""
        self._app.run_worker(self._rescan(), group="rescan", exclusive=True)

    def save_settings(self) -> None:
        """Write the chosen values to the user's config file."""
        try:
            path, keys = self._controls.save_settings()
            used = found_file()
        except Refused as refused:
            self._refuse(refused)
            return
        except ConfigError as error:
            self._tell(str(error), "error")
            return
        hidden = "" if used == path else f" ./{used} is used instead of it here."
        self._tell(f"Saved {', '.join(keys)} to {path}.{hidden}", "information")

    def _entry(self, choice: Choice) -> MenuEntry:
        chosen = value_of(self._controls.config, choice.key) == choice.value
        title = f"{choice.title} ✓" if chosen else choice.title
        return MenuEntry(title, choice.key, partial(self.choose, choice))

    async def _rescan(self) -> None:
        try:
            self._controls.check_rescan()
            before = await self._device_titles()
            self._controls.rescan_devices()
        except Refused as refused:
            self._refuse(refused)
            return
        self._known, self._microphone = before, self._controls.microphone

    async def _show_new_devices(self, known: frozenset[str], in_use: bool) -> None:
        """Name the devices that are not in `known`. `in_use`: one of them is used already."""
        new = sorted(await self._device_titles() - known)
        if new:
            self._tell(f"New: {'; '.join(new)}. Ctrl+P uses it.", "information")
        elif not in_use:
            self._tell("No other device was found.", "information")

    async def _device_titles(self) -> frozenset[str]:
        found = await in_thread(self._controls.devices)
        return frozenset(choice.title for choice in device_choices(found))


class MenuProvider(Provider):
    """Serves the menu's entries, as they were when the palette opened."""

    source: ClassVar[Menu]
    _fixed: Sequence[MenuEntry] = ()
    _devices: asyncio.Future[Sequence[MenuEntry]] | None = None

    async def startup(self) -> None:
        """Begin to list the devices, once; a key may cancel a search that waits for them."""
        self._fixed = list(self.source.entries())
        self._devices = asyncio.ensure_future(self.source.devices())

    async def discover(self) -> Hits:
        async for entry in self._entries():
            yield DiscoveryHit(Content(entry.title), entry.act, entry.title, entry.about)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        async for entry in self._entries():
            if (score := matcher.match(entry.title)) > 0:
                shown = _highlighted(entry.title, matcher)
                yield Hit(score, shown, entry.act, entry.title, entry.about)

    async def _entries(self) -> AsyncIterator[MenuEntry]:
        """Yield the devices first, or last if listing them takes long."""
        assert self._devices is not None
        await asyncio.wait((self._devices,), timeout=DEVICES_SECONDS)
        first = self._devices.result() if self._devices.done() else ()
        for entry in (*self._fixed[:2], *first, *self._fixed[2:]):
            yield entry
        if not first:
            for entry in await asyncio.shield(self._devices):
                yield entry


async def in_thread(work: Callable[[], Found]) -> Found:
    """Return the result of `work`, run on a daemon thread.

    Not on an executor's thread, because this work may hang in a sound server and an executor would
    then delay quitting.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Found] = loop.create_future()

    def finish(found: Found) -> None:
        if not done.done():
            done.set_result(found)

    def run() -> None:
        found = work()
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(finish, found)

    threading.Thread(target=run, name="voxtui-devices", daemon=True).start()
    return await done


def _highlighted(title: str, matcher: Matcher) -> Content:
    """Mark the characters of `title` that match.

    The matcher's own method would parse a device's name as markup, and fail on invalid markup.
    """
    content = Content(title)
    for place in matcher.fuzzy_search.match(matcher.query, title)[1]:
        content = content.stylize(matcher.match_style, place, place + 1)
    return content
