"""What can be chosen without leaving: the entries of the command palette."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.fuzzy import Matcher

from voxtui.errors import DeviceError, ModelError
from voxtui.settings.schema import Config
from voxtui.settings.sources import options_of, value_of

if TYPE_CHECKING:
    from voxtui.audio.devices import Device
    from voxtui.dialogue.commands import ReplaceParts
    from voxtui.dialogue.interfaces import Brain, Microphone, Speaker, Voice
    from voxtui.dialogue.loaders import Loaders

SPEEDS = (0.8, 1.0, 1.2, 1.5)

LOOK_AGAIN = "Look for devices again"

DEFAULT_DEVICE = "the system's default"


@dataclass(frozen=True, slots=True)
class Parts:
    """Makes each part as a configuration wants it. Raises VoxtuiError.

    Brain and voice also get a way to say which of two was chosen, and why. `anew` makes both after
    a start that failed; True: a chat model that is not here is to be fetched.
    """

    microphone: Callable[[Config], Microphone]
    speaker: Callable[[Config], Speaker]
    brain: Callable[[Config, Callable[[str], object]], Brain | Loaders[Brain]]
    voice: Callable[[Config, Callable[[str], object]], Voice | Loaders[Voice] | None]
    anew: Callable[[Config, Callable[[str], object], bool], ReplaceParts]
    devices: Callable[[], Sequence[Device]]


@dataclass(frozen=True, slots=True)
class Choice:
    """One value for one key."""

    title: str
    key: str
    value: Any

    def chosen(self, config: Config) -> bool:
        return value_of(config, self.key) == self.value


def choices(config: Config, parts: Parts | None, themes: Sequence[str]) -> Iterator[Choice]:
    """Everything that can be chosen here; without `parts` the theme only."""
    if parts is not None:
        yield from _devices(parts)
        for name in options_of("brain.name"):
            elsewhere = config.brain.remote.hosts if name == "remote" else ""
            if elsewhere or name != "remote":
                about = f", your voice goes to {elsewhere}" if elsewhere else ""
                about += _fetched_first(config) if name == "voxtral" else ""
                yield Choice(f"Brain: {name}{about}", "brain.name", name)
        for name in options_of("voice.engine"):
            yield Choice(f"Voice: {name}", "voice.engine", name)
        for speed in SPEEDS:
            yield Choice(f"Speed of the voice: {speed:g}", "voice.speed", speed)
        for name in options_of("generation.preset"):
            yield Choice(f"Preset: {name}", "generation.preset", name)
    for name in themes:
        yield Choice(f"Theme: {name}", "ui.theme", name)


def _fetched_first(config: Config) -> str:
    """What choosing Voxtral would bring from the hub."""
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


def _devices(parts: Parts) -> Iterator[Choice]:
    try:
        found = parts.devices()
    except DeviceError:
        return
    for kind, key in (("Microphone", "audio.input"), ("Speaker", "audio.output")):
        able = [d.name for d in found if (d.inputs if key == "audio.input" else d.outputs)]
        for name in dict.fromkeys(("", *able)):
            yield Choice(f"{kind}: {name or DEFAULT_DEVICE}", key, name)


class Choosing(Protocol):
    """What the palette needs of the app."""

    def offered(self) -> Sequence[tuple[Choice, bool]]: ...
    def choose(self, choice: Choice) -> None: ...
    def rescan_devices(self) -> None: ...
    def action_save_settings(self) -> None: ...


class Choices(Provider):
    """The palette's entries."""

    @property
    def _entries(self) -> Iterator[tuple[str, str, Callable[[], object]]]:
        app = cast("Choosing", self.app)
        yield "Save settings", "write what was chosen to your config file", app.action_save_settings
        yield LOOK_AGAIN, "offers what was plugged in since the start", app.rescan_devices
        for choice, chosen in app.offered():
            yield (
                f"{choice.title} ✓" if chosen else choice.title,
                choice.key,
                partial(app.choose, choice),
            )

    async def discover(self) -> Hits:
        for title, about, act in self._entries:
            yield DiscoveryHit(Content(title), act, title, about)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for title, about, act in self._entries:
            if (score := matcher.match(title)) > 0:
                yield Hit(score, _highlighted(title, matcher), act, title, about)


def _highlighted(title: str, matcher: Matcher) -> Content:
    """`title` with what it matches by. The matcher's own way would read a device's name as markup,
    and dies of one that is none."""
    content = Content(title)
    for place in matcher.fuzzy_search.match(matcher.query, title)[1]:
        content = content.stylize(matcher.match_style, place, place + 1)
    return content
