"""The memory of models whose inputs differ in length."""

import subprocess
import sys

import pytest

SPEAK = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from voxtui.settings.schema import VoiceConfig
from voxtui.voices.hibari import HibariVoice

def megabytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20

voice = HibariVoice(VoiceConfig())
voice.warm_up(lambda step, fraction: None)
threads = [ThreadPoolExecutor(1) for _ in range(10)]
clause = "The quick brown fox jumps over the lazy dog and sleeps in the garden until it rains."
used = [
    thread.submit(lambda: (list(voice.speak(clause)), megabytes())[1]).result()
    for thread in threads
]
print(used[-1] - used[0])
"""


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.skipif(sys.platform != "linux", reason="It reads /proc.")
def test_a_voice_takes_no_more_memory_on_its_tenth_thread_than_on_its_first():
    """Each conversation of the server has threads of its own."""
    ran = subprocess.run(
        [sys.executable, "-c", SPEAK], check=True, capture_output=True, text=True, timeout=120
    )
    assert float(ran.stdout) < 20
