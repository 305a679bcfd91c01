"""Talking without a key over loudspeakers."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.audio.sounds import report
from tests.virtual_audio import VirtualAudio, read_devices

pytestmark = [pytest.mark.audio, pytest.mark.slow, pytest.mark.models]


def test_an_answer_is_heard_out_and_a_voice_interrupts_it(virtual_audio: VirtualAudio) -> None:
    pytest.importorskip("pywebrtc_audio", reason="the extra hands-free is not installed")
    from benchmarks.echo import Room, described

    speaker = virtual_audio.plug_in_loudspeaker(100)
    read_devices()
    room = Room(virtual_audio, speaker)
    with closing(room.engine):
        to_itself = [room.answers_itself() for _ in range(3)]
        times = [room.interrupted(words, 2.0) for words in ("largest-planet", "first-month")]
    report(described(times))
    assert not any(to_itself)
    assert None not in times
