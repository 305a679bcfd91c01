"""A conversation in Spanish: Whisper hears it, the chat model answers, Kokoro speaks."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.audio.test_dictate import Shell
from tests.virtual_audio import RATE, VirtualAudio
from voxtui.audio.resampling import resample
from voxtui.brains.embedded.whisper import Whisper, is_here
from voxtui.dialogue.data import AUDIBLE, SAMPLE_RATE
from voxtui.models.catalogue import SMALL_KOKORO, WHISPER
from voxtui.models.installed import kokoro_files
from voxtui.settings.schema import VoiceConfig
from voxtui.voices import kokoro

LACKING = [
    name
    for name, here in {
        "`voxtui models fetch whisper-base` and its runtime": is_here(),
        "`voxtui models fetch kokoro-small`": SMALL_KOKORO.path.exists(),
        "espeak-ng": shutil.which("espeak-ng"),
        "tmux": shutil.which("tmux"),
    }.items()
    if not here
]

pytestmark = [
    pytest.mark.slow, pytest.mark.audio, pytest.mark.models,
    pytest.mark.skipif(bool(LACKING), reason=f"needs {', '.join(LACKING)}"),
]  # fmt: skip


@pytest.fixture(scope="module")
def question(tmp_path_factory: pytest.TempPathFactory, virtual_audio: VirtualAudio) -> Path:
    """Return a spoken question, by the voice that will answer it."""
    with closing(kokoro.KokoroVoice(VoiceConfig(), kokoro_files(VoiceConfig()))) as voice:
        voice.warm_up(lambda step, fraction: None)
        chunks = list(voice.speak("¿Cuál es la capital de Francia?", language="es"))
    samples = np.concatenate([chunk.samples for chunk in chunks])
    return virtual_audio.wav(samples, kokoro.RATE)


@pytest.fixture
def shell(virtual_audio: VirtualAudio, tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(virtual_audio, tmp_path)
    yield shell
    shell.close()


def test_a_spanish_question_is_answered_in_spanish_aloud(
    shell: Shell, virtual_audio: VirtualAudio, question: Path
) -> None:
    shell.types("voxtui --set brain.name=embedded --set brain.language=es")
    shell.shows("READY")
    with virtual_audio.record() as recorder:
        shell.presses("Space")
        shell.shows("LISTENING")
        assert virtual_audio.say(question).wait() == 0
        shell.presses("Space")
        shell.shows("capital de Francia")  # the question
        shell.shows("París")
        shell.shows("READY")  # after the answer was played
        samples = recorder.samples
    shell.presses("C-c")
    loud = np.flatnonzero(np.abs(samples) > AUDIBLE)
    spoken = resample(samples[loud[0] : loud[-1]].astype(np.float32), RATE, SAMPLE_RATE)
    whisper = Whisper(WHISPER.path, "es")
    whisper.load()
    assert "capital de francia" in whisper.recognise(spoken[-28 * SAMPLE_RATE :]).text.lower()
