from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.deadline import SECONDS
from tests.virtual_audio import VirtualAudio, missing

OURS = "voxtui"
"""Prefix of the names of our threads."""

# Hypothesis fails a slow example by the clock, which says more about the machine than the code.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


def pytest_configure(config: pytest.Config) -> None:
    """Keep records and logs of the tests, and of processes that they start, out of the user's."""
    folder = tempfile.TemporaryDirectory(prefix="voxtui-tests-", ignore_cleanup_errors=True)
    config.add_cleanup(folder.cleanup)
    os.environ["XDG_STATE_HOME"] = folder.name


@pytest.fixture(scope="module")
def virtual_audio() -> Iterator[VirtualAudio]:
    """Start a sound server for the module; VOXTUI_REQUIRE_AUDIO=1 makes its absence a failure."""
    reason = _why_not()
    if reason:
        if os.environ.get("VOXTUI_REQUIRE_AUDIO") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    with VirtualAudio() as audio, audio.environment():
        yield audio


def _why_not() -> str:
    if programs := missing():
        return f"no virtual sound server: {', '.join(programs)} not installed"
    try:
        import sounddevice  # noqa: F401
    except OSError:
        return "PortAudio is not installed"
    return ""


@pytest.fixture(scope="session")
def tiny_voxtral(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a checkpoint of random weights; return its directory."""
    from tests.brains.voxtral.tiny_voxtral import build

    directory = tmp_path_factory.mktemp("voxtral") / "tiny"
    build(directory)
    return directory


@pytest.fixture(autouse=True)
def no_thread_is_left_behind() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    ours = [
        thread
        for thread in threading.enumerate()
        if thread not in before and thread.name.startswith(OURS)
    ]
    for thread in ours:
        thread.join(SECONDS)
    left = [thread.name for thread in ours if thread.is_alive()]
    assert not left, f"threads left behind: {left}"
