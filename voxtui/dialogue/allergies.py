"""Find and keep what a person says of allergies and the like, because no answer may forget it."""

from __future__ import annotations

import re

MOST_REMEMBERED = 2
"""Sentences or turns that are remembered, the newest ones."""

_INTOLERANT = re.compile(
    r"\b(?:allerg(?:ic|y|ies)|intoleran(?:t|ce)|vegan|vegetarian|co?eliac"
    r"|(?:can't|cannot|can not|mustn't|must not|may not|doesn't|don't|never) "
    r"(?:eat|eats|have any|drink|drinks|stand|digest|tolerate)"
    r"|(?:gets?|feels?|makes? (?:me|him|her|them)) (?:very |really |so )?(?:sick|ill|unwell))\b",
    re.IGNORECASE,
)


def mentions_allergy(text: str) -> bool:
    return _INTOLERANT.search(text) is not None


def allergies(text: str) -> list[str]:
    """Return the sentences of `text` that state something of the kind. Questions state nothing."""
    sentences = (sentence.strip() for sentence in re.split(r"(?<=[.?!])\s+", text))
    return [one for one in sentences if mentions_allergy(one) and not one.endswith("?")]
