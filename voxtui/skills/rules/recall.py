"""Recall names of people and pets that the user mentioned, such as `my sister Anna`."""

from __future__ import annotations

import re
from itertools import chain

from voxtui.dialogue.protocols import AUDIO_INPUT, Past
from voxtui.skills.rules.forms import ENGLISH, PARTS, compile_forms, english, matches, pattern
from voxtui.skills.rules.intents import Fact

_ASKED = english("people")
_NAMED = tuple(chain(*compile_forms(ENGLISH["people_named"], PARTS, flags=0).values()))
_UNSURE, _CORRECTS, _ABOUT_ONESELF = map(pattern, ("{unsure}", "{corrects}", "{oneself}"))


def understand(text: str, past: Past) -> Fact | None:
    """Return the name of somebody in `past`, or who has a name; None if it is not certain."""
    for kind, words in matches(_ASKED, text):
        if kind == "own":
            return _unknown(past)
        relation = words.get("relation", "").lower()
        name = (words.get("name") or words.get("last", "")).lower() + " "
        named = {
            one
            for one in _named(past)
            if (one[1:] == (True, relation) if relation else f"{one[0]} ".lower().startswith(name))
        }
        if len(named) != 1:
            continue
        ((full, mine, related),) = named
        if relation:
            return Fact("name", full, f"Your {relation} is called {full}.")
        if mine:
            return Fact("name", related, f"{full} is your {related}.")
    return None


def _unknown(past: Past) -> Fact | None:
    """Return that a fact about the user is unknown, or None if a turn may mention it."""
    if len(past) > 2:  # a longer history may have lost its beginning
        return None
    for turn in past:
        words = turn.user_text
        for form in _ASKED["own"]:
            words = form.sub("", words)
        if turn.attached or words.startswith(AUDIO_INPUT) or _ABOUT_ONESELF.search(words):
            return None
    return Fact("unknown", "", "I don't know, you haven't told me.")


def _named(past: Past) -> list[tuple[str, bool, str]]:
    """Return each name in the user's words, whether it belongs to the user, and the relation."""
    named: list[tuple[str, bool, str]] = []
    for turn in past:
        if turn.attached:
            continue
        for sentence in re.split(r"(?<=[.?!;])\s+|[.!;]$", turn.user_text.replace("’", "'")):
            corrects = _CORRECTS.search(sentence)
            plain = re.sub(r", not [A-Z]\w+$", "", sentence)
            if _UNSURE.search(plain):
                continue
            for found in chain.from_iterable(form.finditer(plain) for form in _NAMED):
                mine, relation = found["whose"].lower() in ("my", "our"), found["relation"].lower()
                if corrects:
                    named = [one for one in named if one[1:] != (mine, relation)]
                named.append((found["name"], mine, relation))
    return named
