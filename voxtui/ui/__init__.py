"""The terminal screen. Nothing else imports Textual."""

import os

# Textual paints at most so often; its default of 60 lets a token wait for 17 ms. It reads this once,
# when it is first imported.
os.environ.setdefault("TEXTUAL_FPS", "120")
