"""The terminal screen, the only room that imports Textual."""

import os

# How often Textual paints at most; its default of 60 lets a token wait for 17 ms. It reads this
# once, when it is first imported.
os.environ.setdefault("TEXTUAL_FPS", "240")
