"""Turn a sentence into its meaning, by every rule of every skill in order."""

from __future__ import annotations

import re
from datetime import datetime

from voxtui.dialogue.protocols import Past
from voxtui.skills.rules import clock, jokes, languages, recall, sums, timer_words, units
from voxtui.skills.rules.intents import Meaning
from voxtui.skills.rules.normalise import normalise, strip_courtesy

LONGEST_REQUEST = 200
"""Maximum characters of a request. Rules ignore a longer text."""


def understand(sentence: str, now: datetime, past: Past = ()) -> Meaning | None:
    """Return the meaning of `sentence` at the local time `now`; None if no skill understands it."""
    if len(sentence) > LONGEST_REQUEST:
        return None
    plain = " ".join(re.sub(r"[.?!,।…]+(?=[\s\"”»’']|$)|[¿¡]", "", sentence).split())
    plain = strip_courtesy(plain)
    meaning = languages.understand(plain, now, past) or recall.understand(plain, past)
    if meaning := meaning or jokes.understand(plain, past):
        return meaning
    text = strip_courtesy(normalise(sentence))
    try:
        dated = timer_words.understand_reminder(text, now) or clock.understand(text, now)
    except (ValueError, OverflowError):
        return None  # a day that no calendar of Python's has
    return dated or timer_words.understand(text) or sums.understand(text) or units.understand(text)
