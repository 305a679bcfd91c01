"""Names of people and pets that the user told in passing: `my sister Anna`."""

from __future__ import annotations

import re

from voxtui.dialogue.protocols import AUDIO_INPUT, Past
from voxtui.skills.intents import Fact

_RELATIONS = (
    r"(?:sister|brother|mother|father|mum|mom|dad|daughter|son|wife|husband|partner|girlfriend"
    r"|boyfriend|fianc[eé]e?|cousin|aunt|uncle|niece|nephew|grandmother|grandfather|grandma"
    r"|grandpa|granny|(?:best )?friend|neighbou?r|boss|colleague|teacher|doctor|dentist|flatmate"
    r"|roommate|landlord|landlady|(?:step|half-)?(?:brother|sister|mother|father|son|daughter)"
    r"|(?:mother|father|brother|sister|son|daughter)-in-law|dog|cat|puppy|kitten|horse|pony|rabbit"
    r"|hamster|parrot)"
)
_NO_NAMES = (
    r"(?!(?:I|I'm|I've|I'd|I'll|A|An|The|And|But|Or|So|No|Not|Yes|OK|Monday|Tuesday|Wednesday"
    r"|Thursday|Friday|Saturday|Sunday|January|February|March|July|September|October|November|December|Christmas"
    r"|Easter|Halloween|German|French|Italian|Dutch|Hindi|Russian|Greek|American|Indian|Catholic|Muslim|Canadian|Australian|Austrian|Mexican|Swiss|Is|Was|Has|Had|Are|Were|Will"
    r"|Can|Mr|Mrs|Ms|Dr|[A-Z]\w+(?:ish|ese))\b)"
)
_NAME = rf"{_NO_NAMES}(?P<name>[A-Z][^\W\d_]+(?:-[A-Z][^\W\d_]+)?(?: {_NO_NAMES}[A-Z][^\W\d_]+)?)"
_ADJECTIVES = r"(?:(?:little|big|older|younger|elder|twin|new|old|dear|late) )?"

_CALLED = r"(?: is (?:called|named)|'s name is|, (?:called|named)| (?:called|named))"
_BEFORE = (
    r"(?:^|(?:^|[ ,])(?:(?i:so|well|yes|no|sorry|actually|oh|but|today|and|with|for|to|from|by"
    r"|about|of|at|visit(?:ed|ing)?|met|meet(?:ing)?|saw|see(?:ing)?|loves?|miss(?:es)?)),? )"
)
_TOLD = re.compile(
    rf"{_BEFORE}(?P<whose>(?i:my|our|your|his|her|their|the|a|[\w-]+'s)) "
    rf"{_ADJECTIVES}(?P<relation>{_RELATIONS})(?:{_CALLED})? {_NAME}\b"
)
_APPOSITION = re.compile(
    rf"^(?P<whose>[Mm]y|[Oo]ur) {_ADJECTIVES}(?P<relation>{_RELATIONS}), {_NAME},"
    r"(?! (?:and|or)\b| [A-Z])"
)
_UNSURE = re.compile(
    r"\b(?:not|never|no longer|said|says|say|told|tells|tell|asked|asks|ask|thinks?|thought|if"
    r"|whether|maybe|perhaps|wish|used to|call me|called me)\b|n't\b|\?",
    re.IGNORECASE,
)
"""A sentence with one of these may name nobody: `my sister isn't called Anna`."""
_CORRECTS = re.compile(r"^(?:no|sorry|actually|i meant?)\b|, not [A-Z]\w+$", re.IGNORECASE)

_NAME_ASKED = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        rf"what(?:'s|s| is) (?:my|our) (?P<relation>{_RELATIONS})(?:'s? name| called)(?: again)?",
        rf"what(?:'s|s| is) the name of (?:my|our) (?P<relation>{_RELATIONS})(?: again)?",
        rf"what did i (?:say|tell you) (?:my|our) (?P<relation>{_RELATIONS})"
        r"(?:'s name (?:was|is)|(?: was| is) called)",
        rf"(?:my|our) (?P<relation>{_RELATIONS})'s name",
    )
)
_WHO_ASKED = re.compile(
    r"(?:who(?:'s| is) (?P<name>[^\W\d_]+)|who (?P<name2>[^\W\d_]+) is)(?: again)?", re.IGNORECASE
)

_PERSON = (
    "(?:mother|father|brother|sister|uncle|aunt|wife|husband|son|daughter|dog|cat|boss|friend)"
)
_PLACE = "(?:city|town|country|street)"
_OWN_ASKED = re.compile(
    r"what(?:'s|s| is) my (?:(?:first |last |own )?name|job|profession|age|address|home ?town"
    rf"|birthday|fav(?:ou?)rite \w+|{_PERSON}(?:'s name| called))|what am i called|who am i"
    r"|how old am i|when is my birthday|what do i (?:drive|do for a living)"
    r"|(?:so |and )?where do i (?:live|work|come from)|in which (?:city|town) do i (?:live|work)"
    rf"|(?:what|which) {_PLACE} (?:am i in|(?:do|did) i (?:live|work) in)"
    r"|(?:what|which) (?:car|sport|instrument|school|pets?) (?:do|did) i (?:have|drive|play|go to)"
    r"|do you (?:still )?(?:know|remember) (?:my name|who i am|where i live|how old i am)"
    r"|what did i (?:say|tell you) about my \w+|what have i told you about (?:me|myself)"
    r"|what did i (?:plan|pack|buy|eat|cook|do|have for \w+)"
    r" (?:for )?(?:today|yesterday|this morning|last night|last week(?:end)?)",
    re.IGNORECASE,
)
_SURELY_WHOLE = 2
"""Turns of a history from which nothing was dropped."""

_ABOUT_ONESELF = re.compile(r"\b(?:i|i'm|my|me|mine|your?|we|we're|our|us|call)\b", re.IGNORECASE)


def untold(text: str, past: Past) -> Fact | None:
    """Return that a fact about the user is unknown, if nothing in `past` can hold it.

    After a few turns the history may have dropped the first ones, so then the brain answers.
    """
    if len(past) > _SURELY_WHOLE or not _OWN_ASKED.fullmatch(text):
        return None
    for turn in past:
        words = _OWN_ASKED.sub("", turn.user_text)
        if turn.attached or words.startswith(AUDIO_INPUT) or _ABOUT_ONESELF.search(words):
            return None
    return Fact("unknown", "", "I don't know, you haven't told me.")


def understand(text: str, past: Past) -> Fact | None:
    """Return the name of one that the user named in `past`, or who that is; None if unsure."""
    for form in _NAME_ASKED:
        if found := form.fullmatch(text):
            relation = found["relation"].lower()
            names = {name for name, mine, related in _named(past) if mine and related == relation}
            if len(names) == 1:
                (name,) = names
                return Fact("name", name, f"Your {relation} is called {name}.")
    if found := _WHO_ASKED.fullmatch(text):
        asked = (found["name"] or found["name2"]).lower()
        named = {
            (name, mine, relation)
            for name, mine, relation in _named(past)
            if asked in (name.lower(), name.lower().split()[0])
        }
        if len(named) == 1 and (one := named.pop())[1]:
            return Fact("name", one[2], f"{one[0]} is your {one[2]}.")
    return None


def _named(past: Past) -> list[tuple[str, bool, str]]:
    """Return each name in the user's words, if it is of the user's own, and the relation."""
    named: list[tuple[str, bool, str]] = []
    for turn in past:
        if turn.attached:
            continue
        for sentence in re.split(r"(?<=[.?!;])\s+|[.!;]$", turn.user_text.replace("’", "'")):
            corrects = _CORRECTS.search(sentence)
            plain = re.sub(r", not [A-Z]\w+$", "", sentence)
            if _UNSURE.search(plain):
                continue
            for found in (*_TOLD.finditer(plain), *_APPOSITION.finditer(plain)):
                mine, relation = found["whose"].lower() in ("my", "our"), found["relation"].lower()
                if corrects:
                    named = [one for one in named if one[1:] != (mine, relation)]
                named.append((found["name"], mine, relation))
    return named
