"""The microphone and the speaker in use, and what takes the place of one that is lost."""

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
"""Makes what replaces a lost device. Called while neither is open."""


class SoundDevices:
    """The two, either of which may be missing (None).

    The engine's thread alone opens, exchanges and closes them; any thread may read `level`.
    `hear` gets every frame; `lost`, once a microphone is gone, what `is_in_use` takes and a
    sentence. Both are called on the microphone's thread. Without `fallback_devices` nothing
    replaces what is lost.
    """

    def __init__(
        self,
        microphone: Microphone | None,
        speaker: Speaker | None,
        fallback_devices: FallbackDevices | None,
        hear: Callable[[Frame], None],
        lost: Callable[[object, str], None],
    ) -> None:
        self.microphone = microphone
        self.speaker = speaker
        self._wanted = (microphone, speaker)
        """those that were asked for, even while others stand in for them"""
        self._spares = fallback_devices
        self._hear = hear
        self._lost = lost
        self._openings = WeakKeyDictionary[Microphone, object]()
        """the latest of each microphone"""
        self._unproven = False
        """the microphone replaced a lost one, and has not delivered anything"""

    @property
    def level(self) -> float:
        """The microphone's peak, 0..1."""
        microphone = self.microphone
        return microphone.level if microphone else 0.0

    def delivered(self) -> None:
        """The microphone has: should it be lost, another is tried."""
        self._unproven = False

    def open(self) -> list[Event]:
        """Open both; one that cannot be gives way to the system's default, or is done without.

        Returns what is to be told of it. Called again after `close`, both are tried again.
        """
        self.microphone, self.speaker = self._wanted
        told: list[Event] = []
        if self.speaker is not None:
            try:
                self.speaker.open()
            except DeviceError as error:
                self.speaker = None
                told.append(Notice(str(error)))
        if self.microphone is not None:
            try:
                self.listen(self.microphone)
            except DeviceError as error:
                self.microphone = None
                told.append(Notice(str(error)))
        if (self.microphone, self.speaker) != self._wanted:
            told += self._open_anew((self.microphone,), (self.speaker,))
        if self.microphone is not None:
            told.append(MicrophoneOpened(self.microphone.name))
        elif self._wanted[0] is not None and self._spares is None:
            told.append(MicrophoneLost())
        return told

    def listen(self, microphone: Microphone) -> None:
        """Open `microphone`. Raises DeviceError."""
        opening = object()
        microphone.open(self._hear, partial(self._lost, opening))
        self._openings[microphone] = opening

    def is_in_use(self, opening: object) -> bool:
        """Whether what was lost is still listened to.

        It may have been replaced since, or opened anew: a headset that is unplugged takes the
        speaker along, and whichever is noticed first replaces both.
        """
        return self.microphone is not None and self._openings.get(self.microphone) is opening

    def use(
        self, microphone: Microphone | None, speaker: Speaker | None
    ) -> list[Microphone | Speaker | None]:
        """Use these, which are open; None: keep the one so far. Returns what they replace."""
        old: list[Microphone | Speaker | None] = []
        if microphone is not None:
            old.append(self.microphone)
            self.microphone = microphone
        if speaker is not None:
            old.append(self.speaker)
            self.speaker = speaker
        self._wanted = (microphone or self._wanted[0], speaker or self._wanted[1])
        return old

    def replace_microphone(self) -> list[Event]:
        """It was lost. What replaced a lost one and never delivered is not replaced again."""
        if self._spares is None or self._unproven:
            if self.microphone is not None:
                self.microphone.close()
            self.microphone = None
            return [MicrophoneLost()]
        return self._open_anew((), (self.speaker,))

    def replace_speaker(self) -> list[Event]:
        """It was lost."""
        return self._open_anew((self.microphone,), ())

    def rescan_devices(self) -> list[Event]:
        """What was asked for is used if it is back, else what was in use, else the default."""
        microphone, speaker = self._wanted
        return self._open_anew((microphone, self.microphone), (speaker, self.speaker))

    def close(self) -> None:
        for part in (self.microphone, self.speaker):
            if part is not None:
                part.close()

    def _open_anew(
        self, microphones: Sequence[Microphone | None], speakers: Sequence[Speaker | None]
    ) -> list[Event]:
        """Use the first of each that can be opened, or the system's default; what is to be told.

        New devices are found only while none is open: what was not lost is opened anew.
        """
        if self._spares is None:
            return []
        had, spoke = self.microphone, self.speaker
        names = [part.name if part else None for part in (had, spoke)]
        self.close()
        spare, loud = self._spares()
        self.microphone = _first((*microphones, spare), self.listen)
        found = _first((*speakers, loud), lambda speaker: speaker.open())
        self.speaker = found or spoke  # which tries again with the next answer
        told: list[Event] = []
        if self.microphone is None:
            told.append(MicrophoneLost())
        elif self.microphone is not had or self.microphone.name != names[0]:
            self._unproven = True
            told.append(Notice(f"Listening to {self.microphone.name} now.", "information"))
        if found is not None and (found is not spoke or found.name != names[1]):
            told.append(Notice(f"Speaking through {found.name} now.", "information"))
        return told


def _first(candidates: Iterable[T | None], begin: Callable[[T], None]) -> T | None:
    """The first with which `begin` succeeds."""
    for candidate in candidates:
        with suppress(DeviceError):
            if candidate is not None:
                begin(candidate)
                return candidate
    return None
