"""Open the microphone and the speaker, and replace one that is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar
from weakref import WeakKeyDictionary

from voxtui.dialogue.data import Frame
from voxtui.dialogue.events import Event, MicrophoneLost, MicrophoneOpened, Notice
from voxtui.dialogue.interfaces import Microphone, Speaker
from voxtui.errors import DeviceError

T = TypeVar("T")

FallbackDevices = Callable[[], tuple[Microphone, Speaker]]
"""Makes the system's default devices, which replace a lost one. Called while neither is open."""


class SoundDevices:
    """The microphone and the speaker in use; either may be missing (None).

    Only the engine's thread opens, replaces and closes them; any thread may read `level`.
    `on_frame(frame)` is called for every frame. `on_lost(opening, message)` is called once when
    the microphone disappears; pass `opening` to `is_in_use`. Both are called on the microphone's
    thread. Without `fallback_devices` no lost device is replaced.
    """

    def __init__(
        self,
        microphone: Microphone | None,
        speaker: Speaker | None,
        fallback_devices: FallbackDevices | None,
        on_frame: Callable[[Frame], None],
        on_lost: Callable[[object, str], None],
    ) -> None:
        self.microphone = microphone
        self.speaker = speaker
        self._wanted = (microphone, speaker)
        """the configured or chosen devices, even while others replace them"""
        self.speaker_lost = False
        """the speaker failed during an answer"""
        self._fallback_devices = fallback_devices
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._openings = WeakKeyDictionary[Microphone, object]()
        """the latest opening of each microphone"""
        self._unproven = False
        """the microphone replaced a lost one, and has delivered no frame yet"""

    @property
    def level(self) -> float:
        """The microphone's peak, 0..1."""
        microphone = self.microphone
        return microphone.level if microphone else 0.0

    def delivered(self) -> None:
        """Note that the microphone works: if it is lost, another one is tried."""
        self._unproven = False

    def open(self) -> list[Event]:
        """Open both. The system's default replaces one that cannot be opened.

        Returns the events to report. Called again after `close`, it tries both again.
        """
        self.microphone, self.speaker = self._wanted
        events: list[Event] = []
        if self.speaker is not None:
            try:
                self.speaker.open()
            except DeviceError as error:
                self.speaker = None
                events.append(Notice(str(error)))
        if self.microphone is not None:
            try:
                self.listen(self.microphone)
            except DeviceError as error:
                self.microphone = None
                events.append(Notice(str(error)))
        if (self.microphone, self.speaker) != self._wanted:
            events += self._open_anew((self.microphone,), (self.speaker,))
        if self.microphone is not None:
            events.append(MicrophoneOpened(self.microphone.name))
        elif self._wanted[0] is not None and self._fallback_devices is None:
            events.append(MicrophoneLost())
        return events

    def listen(self, microphone: Microphone) -> None:
        """Open `microphone`. Raises DeviceError."""
        opening = object()
        microphone.open(self._on_frame, partial(self._on_lost, opening))
        self._openings[microphone] = opening

    def is_in_use(self, opening: object) -> bool:
        """Return True if the microphone of this `opening` is still in use.

        It may have been replaced or opened again since: an unplugged headset loses microphone and
        speaker, and the first loss that is noticed replaces both.
        """
        return self.microphone is not None and self._openings.get(self.microphone) is opening

    def use(self, microphone: Microphone | None, speaker: Speaker | None) -> None:
        """Use these open devices and close those they replace; None: keep the present one."""
        if microphone is not None:
            _close(self.microphone)
            self.microphone = microphone
        if speaker is not None:
            _close(self.speaker)
            self.speaker = speaker
        self._wanted = (microphone or self._wanted[0], speaker or self._wanted[1])

    def replace_microphone(self) -> list[Event]:
        """Replace the lost microphone, unless it is a replacement that delivered no frame."""
        if self._fallback_devices is None or self._unproven:
            _close(self.microphone)
            self.microphone = None
            return [MicrophoneLost()]
        return self._open_anew((), (self.speaker,))

    def replace_speaker(self) -> list[Event]:
        """Replace the lost speaker."""
        self.speaker_lost = False
        return self._open_anew((self.microphone,), ())

    def rescan_devices(self) -> list[Event]:
        """Use the wanted devices if they are back, else those in use, else the default ones."""
        microphone, speaker = self._wanted
        return self._open_anew((microphone, self.microphone), (speaker, self.speaker))

    def close(self) -> None:
        _close(self.microphone)
        _close(self.speaker)

    def _open_anew(
        self, microphones: Sequence[Microphone | None], speakers: Sequence[Speaker | None]
    ) -> list[Event]:
        """Use the first of each that can be opened, or the system's default. Returns the events.

        Both are closed first, because PortAudio finds new devices only while no stream is open.
        """
        if self._fallback_devices is None:
            return []
        old_microphone, old_speaker = self.microphone, self.speaker
        names = [part.name if part else None for part in (old_microphone, old_speaker)]
        self.close()
        microphone, speaker = self._fallback_devices()
        self.microphone = _first((*microphones, microphone), self.listen)
        opened = _first((*speakers, speaker), lambda speaker: speaker.open())
        self.speaker = opened or old_speaker  # it tries again with the next answer
        events: list[Event] = []
        if self.microphone is None:
            events.append(MicrophoneLost())
        elif self.microphone is not old_microphone or self.microphone.name != names[0]:
            self._unproven = True
            events.append(Notice(f"Listening to {self.microphone.name} now.", "information"))
        if opened is not None and (opened is not old_speaker or opened.name != names[1]):
            events.append(Notice(f"Speaking through {opened.name} now.", "information"))
        return events


def _first(candidates: Iterable[T | None], begin: Callable[[T], None]) -> T | None:
    """Return the first candidate with which `begin` succeeds."""
    for candidate in candidates:
        with suppress(DeviceError):
            if candidate is not None:
                begin(candidate)
                return candidate
    return None


def _close(device: Microphone | Speaker | None) -> None:
    if device is not None:
        device.close()
