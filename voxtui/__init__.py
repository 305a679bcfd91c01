"""voxtui: talk to your computer from the terminal, and hear it answer."""

import os

__version__ = "0.2.0"

# onnxruntime reads this once, when it is first imported; its own API call comes too late.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
