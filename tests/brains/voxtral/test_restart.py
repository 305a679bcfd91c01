"""A fast path that takes the process with it: the same command begins again by itself, plain."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.ui.pseudo_terminal import ALTERNATE_SCREEN, ENVIRONMENT, REPOSITORY, PseudoTerminal

pytestmark = pytest.mark.timeout(300)

SENTENCES = {
    "lost": "voxtui: Voxtral's fast path left the GPU unusable: CUDA error: an illegal memory "
    "access was encountered. Starting again without it.",
    "hangs": "voxtui: Voxtral's fast path hung for 1 s. Starting again without it.",
}

PLAIN = "Voxtral answers without its fast path. The last attempt at it did not end."


def command(fault: str, cache: Path, checkpoint: Path, *arguments: str) -> list[str]:
    settings = (
        "brain.name=voxtral", f"brain.voxtral.model={checkpoint}", "voice.engine=none",
        "generation.max_new_tokens=8", "ui.motion=false",
    )  # fmt: skip
    sets = [part for setting in settings for part in ("--set", setting)]
    faulty = [sys.executable, "-m", "tests.brains.voxtral.faulty_voxtui", fault, str(cache)]
    return [*faulty, *arguments, *sets]


@pytest.mark.slow
@pytest.mark.parametrize("fault", SENTENCES)
def test_the_screen_begins_again_by_itself(tiny_voxtral: Path, tmp_path: Path, fault: str) -> None:
    with PseudoTerminal(
        command(fault, tmp_path, tiny_voxtral), size=(180, 40),
        environment={"XDG_STATE_HOME": str(tmp_path)},
    ) as terminal:  # fmt: skip
        terminal.until(lambda: SENTENCES[fault].encode() in terminal.output)
        first = len(terminal.output)
        assert b"\x1b[?1049l" in terminal.output  # the sentence is not lost with the screen
        terminal.until(lambda: terminal.modes.get(ALTERNATE_SCREEN))
        terminal.until(lambda: b"READY" in terminal.output[first:])
        terminal.send("\x11")
        assert terminal.ends() == 0  # of the process that was started: it has replaced itself
        terminal.until(terminal.restored)


@pytest.mark.slow
def test_lines_begin_again_by_themselves_and_answer(tiny_voxtral: Path, tmp_path: Path) -> None:
    with PseudoTerminal(
        command("lost", tmp_path, tiny_voxtral, "--plain"), size=(180, 40),
        environment={"XDG_STATE_HOME": str(tmp_path)},
    ) as terminal:  # fmt: skip
        terminal.until(lambda: SENTENCES["lost"].encode() in terminal.output)
        terminal.until(lambda: PLAIN.encode() in terminal.output)
        terminal.send("Hello.\n")
        terminal.until(lambda: b"Vox: " in terminal.output)
        terminal.send("\x04")
        assert terminal.ends() == 0
        terminal.until(terminal.restored)


@pytest.mark.slow
def test_with_input_from_a_pipe_the_user_is_told_to_start_again(
    tiny_voxtral: Path, tmp_path: Path
) -> None:
    """What the pipe held may have been read, so another process would not get it."""

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command("lost", tmp_path, tiny_voxtral, "--plain"), cwd=REPOSITORY, input="Hello.\n",
            env=ENVIRONMENT | {"XDG_STATE_HOME": str(tmp_path)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    ran = run()
    assert ran.returncode == 2
    assert "Start voxtui again; it will do without it." in ran.stderr
    ran = run()
    assert ran.returncode == 0, ran.stderr
    assert "Vox: " in ran.stdout
