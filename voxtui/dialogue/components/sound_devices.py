"""Open the microphone and the speaker, and replace one that is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from weakref import WeakKeyDictionary

from voxtui.dialogue.data import Frame
from voxtui.dialogue.events import Event, MicrophoneLost, MicrophoneOpened, Notice
from voxtui.dialogue.protocols import Microphone, SoundSystem, Speaker
from voxtui.errors import DeviceError

T = TypeVar("T")

LOOK_SECONDS = 1.0
"""Interval between two attempts to open a missing device."""

HURRY_SECONDS = 10.0
"""Time after a loss or a change of the sound system in which that interval is kept."""

WAKE_SECONDS = 5.0
"""Interval between two attempts to open a microphone that opens but delivers nothing yet. It may
need seconds to wake up, and each new opening starts that again."""

LOOK_SHARE = 20
"""Minimum interval between later attempts, as a multiple of the time that one attempt takes.
PortAudio may take long to start, and some machines have no microphone."""

_STARTING = object()
"""Marks a sound server that is still starting. It offers its default device first, so one more look
is needed to find the chosen device."""


@dataclass(frozen=True, slots=True)
class Devices:
    microphone: Microphone | None = None
    """the microphone, or None for clips and text only"""
    speaker: Speaker | None = None
    """the speaker, or None for text answers only"""
    system: SoundSystem | None = None
    """the sound system that replaces lost devices, or None to replace none"""


NO_DEVICES = Devices()


class SoundDevices:
    """The microphone and the speaker in use; either may be missing (None).

    `look` reopens missing devices. A device that opens may still deliver nothing (suspended), so a
    microphone counts as back only after its first frame.

    Only the engine's thread opens, replaces and closes them; any thread may read `level`.
    `on_frame(frame)` is called for every frame. `on_lost(opening, message)` is called once when the
    microphone disappears; pass `opening` to `is_in_use`. Both are called on the microphone's
    thread.
    """

    def __init__(
        self,
        devices: Devices,
        on_frame: Callable[[Frame], None],
        on_lost: Callable[[object, str], None],
    ) -> None:
        self.microphone = devices.microphone
        self.speaker = devices.speaker
        self._chosen = (devices.microphone, devices.speaker)
        """the configured or chosen devices, even while others replace them"""
        self.speaker_lost = False
        self._system = devices.system
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._openings = WeakKeyDictionary[Microphone, object]()
        """the latest opening of each microphone"""
        self._delivering: object = None
        """the opening that delivered the newest frame; the microphone's thread writes it"""
        self.is_unproven = False
        """whether the microphone replaced a lost one and has delivered no frame yet"""
        self._candidate: Microphone | None = None
        """a microphone that opened after all were lost, and has delivered no frame yet"""
        self._candidate_at = 0.0
        """monotonic seconds at which the candidate was opened"""
        self._speaker_missing = False
        self._system_seen: object = None
        self._check_at = 0.0
        """monotonic seconds of the next look at the sound system"""
        self._look_at = 0.0
        """monotonic seconds before which no attempt is made"""
        self._hurry_until = 0.0

    @property
    def missing(self) -> bool:
        """True while a configured microphone or speaker is missing."""
        microphone_missing = self.microphone is None and self._chosen[0] is not None
        return self._system is not None and (microphone_missing or self._speaker_missing)

    @property
    def level(self) -> float:
        """The microphone's peak, 0 to 1."""
        microphone = self.microphone
        return microphone.level if microphone else 0.0

    @property
    def watched(self) -> bool:
        """True if `look` may find devices. The engine then calls it about once a second."""
        return self._system is not None

    def attend(self, attended: bool) -> None:
        """Have the microphone deliver frames, or stop it. An unproven one goes on. Any thread."""
        if self.microphone is not None:
            self.microphone.attend(attended or self.is_unproven)

    def delivered(self) -> list[Event]:
        """Note that a frame was taken. Returns the events of a microphone that came back."""
        microphone = self._candidate or self.microphone
        if microphone is None or self._openings.get(microphone) is not self._delivering:
            return []  # it is a frame of the one before
        self.is_unproven = False
        if self._candidate is None:
            return []
        self.microphone, self._candidate = self._candidate, None
        if self.microphone is not self._chosen[0]:
            self._system_seen = _STARTING
        return [Notice(f"Listening to {self.microphone.name} again.", "information")]

    def look(self) -> list[Event]:
        """Open missing devices, at most once in LOOK_SECONDS; return the events to report.

        Must not be called during a turn. PortAudio lists new devices only while no stream is open,
        so a working stream is closed only if the system reports that devices came or went.
        """
        began = time.monotonic()
        if self._system is None or began < self._check_at:
            return []
        self._check_at = began + LOOK_SECONDS
        system, seen = self._system.version(), self._system_seen
        self._system_seen = system
        if changed := seen is not None and system != seen:
            self._hurry()
        if self.missing and (changed or began >= self._look_at):
            return self._open_missing(changed)
        if changed and (self.microphone, self.speaker) != self._chosen:
            return self.rescan_devices()
        return []

    def _hurry(self) -> None:
        self._hurry_until = time.monotonic() + HURRY_SECONDS
        self._look_at = 0.0

    def _open_missing(self, system_changed: bool) -> list[Event]:
        assert self._system is not None
        began = time.monotonic()
        if self._candidate and not system_changed and began < self._candidate_at + WAKE_SECONDS:
            return self.try_speaker()
        self._drop_candidate()
        if system_changed and self.microphone is None:
            _close(self.speaker)
            self._speaker_missing = self._chosen[1] is not None
        if self.microphone is None and self._chosen[0] is not None:
            fallback, _ = self._system.default_devices()
            self._candidate = _first((self._chosen[0], fallback), self.listen)
            self._candidate_at = began
        events = self.try_speaker()
        now = time.monotonic()
        self._look_at = 0.0 if now < self._hurry_until else now + LOOK_SHARE * (now - began)
        return events

    def try_speaker(self) -> list[Event]:
        if self._system is None or not self._speaker_missing:
            return []
        _, fallback = self._system.default_devices()
        opened = _first((self._chosen[1], fallback), lambda speaker: speaker.open())
        if opened is None:
            return []
        self.speaker, self._speaker_missing = opened, False
        return [Notice(f"Speaking through {opened.name} again.", "information")]

    def _drop_candidate(self) -> None:
        _close(self._candidate)
        self._candidate = None

    def open(self) -> list[Event]:
        """Open both devices, or the system's defaults. Returns the events. May follow `close`."""
        self.microphone, self.speaker = self._chosen
        events: list[Event] = []
        if self.speaker is not None:
            try:
                self.speaker.open()
            except DeviceError as error:
                self.speaker = None
                events.append(Notice(str(error), "error"))
        if self.microphone is not None:
            try:
                self.listen(self.microphone)
            except DeviceError as error:
                self.microphone = None
                if (notice := Notice(str(error), "error")) not in events:
                    events.append(notice)
        if (self.microphone, self.speaker) != self._chosen:
            events += self._open_anew((self.microphone,), (self.speaker,))
        if self.microphone is not None:
            events.append(MicrophoneOpened(self.microphone.name))
        elif self._chosen[0] is not None and self._system is None:
            events.append(MicrophoneLost())
        return events

    def listen(self, microphone: Microphone) -> None:
        opening = object()

        def deliver(frame: Frame) -> None:
            self._delivering = opening
            self._on_frame(frame)

        microphone.open(deliver, partial(self._on_lost, opening))
        self._openings[microphone] = opening

    def is_in_use(self, opening: object) -> bool:
        """Return True if the microphone of this `opening` is still in use.

        It may have been replaced or opened again since: an unplugged headset loses microphone and
        speaker, and the first loss that is noticed replaces both.
        """
        return self.microphone is not None and self._openings.get(self.microphone) is opening

    def use(self, microphone: Microphone | None, speaker: Speaker | None) -> None:
        """Use these open devices and close those that they replace; None keeps the present one."""
        if microphone is not None:
            self._drop_candidate()
            _close(self.microphone)
            self.microphone = microphone
        if speaker is not None:
            _close(self.speaker)
            self.speaker, self._speaker_missing = speaker, False
        self._chosen = (microphone or self._chosen[0], speaker or self._chosen[1])

    def replace_microphone(self) -> list[Event]:
        if self._system is None or self.is_unproven:
            self._hurry()
            _close(self.microphone)
            self.microphone = None
            return [MicrophoneLost()]
        return self._open_anew((), (self.speaker,))

    def replace_speaker(self) -> list[Event]:
        self.speaker_lost = False
        return self._open_anew((self.microphone,), ())

    def rescan_devices(self) -> list[Event]:
        microphone, speaker = self._chosen
        return self._open_anew((microphone, self.microphone), (speaker, self.speaker))

    def close(self) -> None:
        self._drop_candidate()
        _close(self.microphone)
        _close(self.speaker)

    def _open_anew(
        self, microphones: Sequence[Microphone | None], speakers: Sequence[Speaker | None]
    ) -> list[Event]:
        """Use the first of each that can be opened, or the system's default. Returns the events.

        Closes both first, because PortAudio finds new devices only while no stream is open.
        """
        if self._system is None:
            return []
        old_microphone, old_speaker = self.microphone, self.speaker
        names = [part.name if part else None for part in (old_microphone, old_speaker)]
        self.close()
        microphone, speaker = self._system.default_devices()
        self.microphone = _first((*microphones, microphone), self.listen)
        opened = _first((*speakers, speaker), lambda speaker: speaker.open())
        self.speaker = opened
        was_missing = self._speaker_missing
        self._speaker_missing = opened is None and self._chosen[1] is not None
        self._hurry()
        events: list[Event] = []
        if self.microphone is None:
            events.append(MicrophoneLost())
        elif self.microphone is not old_microphone or self.microphone.name != names[0]:
            self.is_unproven = True
            events.append(Notice(f"Listening to {self.microphone.name} now.", "information"))
        if self._speaker_missing and not was_missing:
            events.append(Notice("There is no speaker. Answers are text until one is back."))
        if opened is not None and (opened is not old_speaker or opened.name != names[1]):
            events.append(Notice(f"Speaking through {opened.name} now.", "information"))
        return events


def _first(candidates: Iterable[T | None], begin: Callable[[T], None]) -> T | None:
    for candidate in candidates:
        with suppress(DeviceError):
            if candidate is not None:
                begin(candidate)
                return candidate
    return None


def _close(device: Microphone | Speaker | None) -> None:
    if device is not None:
        device.close()
