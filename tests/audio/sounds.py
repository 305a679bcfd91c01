"""Signals that tests play and find again in recordings."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import soundfile

from voxtui.audio.resampling import resample

QUESTIONS = Path(__file__).parents[1] / "data" / "questions"


def question(name: str, rate: int = 16_000) -> np.ndarray:
    """Return a spoken question without the silence around it."""
    samples, own = soundfile.read(QUESTIONS / f"{name}.flac", dtype="float32")
    loud = np.flatnonzero(np.abs(samples) > 0.01)
    return resample(samples[loud[0] : loud[-1]], own, rate)


def find(wanted: np.ndarray, heard: np.ndarray) -> tuple[int, float]:
    """Return the index of `wanted` in `heard` and the correlation there (-1..1)."""
    size = 1 << (len(wanted) + len(heard)).bit_length()
    product = np.fft.rfft(heard, size) * np.conj(np.fft.rfft(wanted, size))
    at = int(np.argmax(np.fft.irfft(product, size)[: max(1, len(heard) - len(wanted) + 1)]))
    return at, correlation(wanted, heard[at : at + len(wanted)])


def correlation(wanted: np.ndarray, heard: np.ndarray) -> float:
    if len(wanted) != len(heard):
        return 0.0
    return float(wanted @ heard / (np.linalg.norm(wanted) * np.linalg.norm(heard) + 1e-12))


def edges(wanted: np.ndarray, heard: np.ndarray, rate: int) -> tuple[float, float]:
    """Return the correlations of the first and last 100 ms with the recording at their places.

    Compares at four times the rate, because half a sample of delay costs an `s` several percent.
    """
    at, _ = find(wanted, heard)
    heard = resample(np.pad(heard, rate)[at : at + len(wanted) + 2 * rate], 1, 4)
    wanted = resample(wanted, 1, 4)
    begin, tenth, slack = 4 * rate, 4 * rate // 10, 4 * rate // 500
    ends = ((wanted[:tenth], begin), (wanted[-tenth:], begin + len(wanted) - tenth))
    first, last = (
        find(part, heard[start - slack : start + tenth + slack])[1] for part, start in ends
    )
    return first, last


def report(sentence: str) -> None:
    """Print a measurement, for `pytest -s` and failure reports."""
    sys.stdout.write(f"\n{sentence}\n")
