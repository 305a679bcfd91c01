"""Sound written as a string: `x` is a frame of speech for LoudIsSpeech, `.` one of silence."""

import numpy as np

from voxtui.dialogue.data import FRAME_SAMPLES


def sound(pattern):
    """Return the samples of `pattern`, float32, 16 kHz."""
    loud = [np.full(FRAME_SAMPLES, 0.5 if c == "x" else 0.0, np.float32) for c in pattern]
    return np.concatenate(loud)
