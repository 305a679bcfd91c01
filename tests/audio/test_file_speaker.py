"""Speech written to a file."""

from __future__ import annotations

import os
import secrets
import threading
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.fakes import FakeSpeaker
from voxtui.audio.file_speaker import FileSpeaker
from voxtui.dialogue.data import SpeechChunk
from voxtui.dialogue.protocols import Speaker
from voxtui.dialogue.timestamps import Timestamps
from voxtui.errors import InputError


def play(speaker: Speaker, level: float = 0.25) -> float:
    """Play 100 samples and return the seconds that were heard."""
    timestamps = Timestamps()
    never = threading.Event()
    speaker.play(SpeechChunk(np.full(100, level, np.float32), 24_000, ""), timestamps, never)
    return speaker.finish(timestamps, never)


def test_two_programs_that_write_the_same_file_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "out.wav"
    speakers = [FileSpeaker(path), FileSpeaker(path)]
    for speaker in speakers:
        speaker.open()
    for speaker, level in zip(speakers, (0.25, 0.5), strict=True):
        play(speaker, level)
    for speaker, level in zip(speakers, (0.25, 0.5), strict=True):
        speaker.save()
        samples, _ = soundfile.read(path)
        assert samples == pytest.approx([level] * 100, abs=1e-4)
    assert [found.name for found in tmp_path.iterdir()] == ["out.wav"]


def test_links_planted_at_the_name_of_the_partial_file_are_not_written_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If others may write to the directory, a link could lead to any file of the user."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setattr(secrets, "token_hex", lambda count: "guessed")
    for guess in ("guessed", os.getpid()):
        (shared / f".a.wav.{guess}.partial").symlink_to(victim)
    with pytest.raises(InputError, match=r"a\.wav: cannot be written: File exists\.$"):
        FileSpeaker(shared / "a.wav").open()
    assert victim.read_text() == "precious"


def test_the_file_may_be_read_by_those_whom_the_umask_allows(tmp_path: Path) -> None:
    path, mask = tmp_path / "out.wav", os.umask(0o022)
    try:
        speaker = FileSpeaker(path)
        speaker.open()
        speaker.save()
    finally:
        os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o644


def test_an_abandoned_file_leaves_nothing_behind(tmp_path: Path) -> None:
    speaker = FileSpeaker(tmp_path / "out.wav")
    speaker.open()
    play(speaker)
    speaker.abandon()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["out.mp3", "-", "directory", "missing/out.wav"])
def test_a_path_that_cannot_hold_a_wav_is_refused_and_named(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("directory").mkdir()
    with pytest.raises(InputError, match=f"^{name}: "):
        FileSpeaker(Path(name)).open()
    assert [found.name for found in tmp_path.iterdir()] == ["directory"]


def test_a_full_disk_is_named_as_the_cause(tmp_path: Path) -> None:
    class FullDisk:
        def write(self, samples: object) -> None:
            raise RuntimeError("System error.")

        def close(self) -> None: ...

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(soundfile, "SoundFile", lambda *_, **options: FullDisk())
        speaker = FileSpeaker(tmp_path / "out.wav")
        speaker.open()
        with pytest.raises(InputError, match="is the disk full"):
            play(speaker)
        speaker.abandon()


def test_speech_is_written_and_played_on_the_speaker_beside_the_file(tmp_path: Path) -> None:
    path, beside = tmp_path / "out.wav", FakeSpeaker()
    speaker = FileSpeaker(path)
    speaker.open()
    speaker.speaker = beside
    speaker.open()
    assert speaker.name == beside.name
    assert play(speaker) == pytest.approx(100 / 24_000)
    speaker.save()
    samples, _ = soundfile.read(path)
    assert len(samples) == 100 and len(beside.chunks) == 1 and beside.closed
