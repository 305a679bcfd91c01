"""Answer from the user's own words: their name, and what they have not told."""

from __future__ import annotations

import re
from collections.abc import Sequence

from voxtui.skills import comparisons
from voxtui.skills.meaning import Fact
from voxtui.skills.words import normalise, strip_courtesy

UNKNOWN = "I don't know, you haven't told me."

_NAME_ASKED = re.compile(
    r"(?:(?:what is|what was|say|repeat) |do you (?:still )?(?:know|remember) )?"
    r"(?:my name(?: again| once more)?|who i am|what my name is|what i am called)"
    r"|(?:what|how) am i called|who am i",
)

_NAME = r"(?P<name>[A-Z][\w'-]+(?: [A-Z][\w'-]+)?)"
_GREETING = r"(?:(?:hi|hello|hey|good \w+|vox|there|well|so|and|actually|please|now)\W+)*"
_SAID = (
    re.compile(rf"(?i:{_GREETING}my name(?: is|'s)(?: now)? ){_NAME}(?![\w'])"),
    re.compile(rf"(?i:{_GREETING}(?:you (?:can|may) |just )?call me ){_NAME}(?=\W*$| and\b|,)"),
    re.compile(
        rf"(?i:{_GREETING}(?:I am|I'm|this is) ){_NAME}"
        r"(?=\W*$|,| and (?:I|I'm|my|we)\b| (?:speaking|here|from)\b)"
    ),
)
_TYPED = re.compile(rf"{_GREETING}my name(?: is|'s) (?P<name>[a-z]{{3,15}})(?=\W*$|,)")
"""A name without a capital letter, where nothing else can stand."""

_NO_NAME = re.compile(
    r"\w+(?:ese|ish|an|ani|ench|tch|eek)|dutch|swiss|thai|czech|iraqi|israeli|muslim|catholic"
    r"|protestant|hindu|not|hard|long|short|sorry|ok|okay",
    re.IGNORECASE,
)
"""Words after `I am` that may have a capital letter and are no names: a German, a Catholic."""

_TAKEN_BACK = re.compile(
    r"\b(?:no|not|n't|wrong|wait|meant|mean|sorry|actually|joking|kidding|instead|name)\b"
    r"|n't\b|\bI(?:'m| am) [A-Z]|\bcall me\b",
    re.IGNORECASE,
)

_FAMILY = {
    r"brothers?|sisters?|siblings?|twin": r"brother|sister|sibling|twin|family",
    r"wife|husband|spouse|partner": r"wife|husband|spouse|partner|marr|wedding|family",
    r"mother|mum|mom|father|dad|parents?": r"mother|mum|mom|father|dad|papa|parent|family",
    r"sons?|daughters?|children|kids?|child|baby": r"son|daughter|child|kid|baby|boy|girl|family",
    r"aunts?|uncles?|cousins?|nephews?|nieces?": r"aunt|uncle|cousin|nephew|niece|family",
    r"grand(?:mother|father|ma|pa|parents?|children|son|daughter)": r"grand|granny|family",
}
"""Relatives, and the words without which nothing was said about them."""

_KIN = "|".join(_FAMILY)
_NEAR = rf"(?:{_KIN}|boss|teacher|doctor|dentist|neighbou?r|(?:best )?friend|dog|cat|horse|pet)"
_THING = (
    r"(?:favou?rite \w+(?: \w+)?|job|profession|occupation|age|birthday|address|phone number"
    r"|surname|last name|family name|middle name|first name|hobby|weight|height|nationality"
    r"|religion|star sign|shoe size|blood type|native language|password)"
)
_WHEN = r"(?: (?:yesterday|today|this (?:morning|week)|last (?:night|week|weekend|year)))"

_UNKNOWN_ASKED = re.compile(
    rf"(?:do you (?:still )?(?:know|remember) )?(?:"
    rf"what (?:is|are) (?:my {_THING}|my {_NEAR}(?:'s)? (?:names?|job|age|birthday)"
    rf"|the names? of my (?:{_NEAR})|my {_NEAR} called)"
    rf"|who is my {_NEAR}|how old is my {_NEAR}|how (?:old|tall|heavy) am i"
    rf"|how much do i weigh|how many {_NEAR} do i have|when (?:is my birthday|was i born)"
    rf"|when is my {_NEAR}(?:'s)? birthday"
    r"|where (?:do i (?:live|work|come from|study)|am i from|was i born)"
    r"|where (?:did i (?:park|put|leave) (?:my )?\w+|is my (?:car|bike|phone|wallet|bag))"
    r"|(?:what|which) (?:kind of )?(?:car|bike|motorbike|instrument|sport|team|school)"
    r" do i (?:drive|have|own|ride|play|support|like|go to)"
    r"|what do i do for (?:a living|work)"
    rf"|what did i (?:(?:eat|have|drink) for (?:breakfast|lunch|dinner){_WHEN}?"
    rf"|(?:eat|do|buy|drink|cook|dream|wear){_WHEN})"
    r"|am i (?:married|single|divorced|a vegetarian|a vegan|vegetarian|vegan|left handed)"
    rf"|do i have (?:any |an? )?(?:{_NEAR}|pets?|dogs?|cats?|allergies|allergy|car|job))",
)

_KEY = re.compile(
    r"(?:what|where|(?:what|which) \w+) do i "
    r"(?P<verb>(?!(?:do|need|want|know|think|mean|say|get|find|see|go|have|look|start|begin)\b)"
    r"\w+(?: (?:in|at|for|with|on|from))?)(?: again)?"
    r"|(?P<from>where (?:am i|do i come) from)|what is my (?P<what>[\w ]{2,30})",
)
"""Questions that a clause of the user's own may answer word by word."""

_OWN = r"(?:^|[,;:] |\band )"
"""The beginning of a clause by the user. A clause after `He said` is by another person."""

_CLAUSE_END = r"(?=[.?!;]|$|,(?! \d)| (?:and|but|because|so|when|while|if|which|who)\b)"
_TURNED = {"i": "you", "i'm": "you're", "my": "your", "me": "you", "am": "are", "mine": "yours",
           "myself": "yourself", "our": "your", "we": "you", "us": "you"}  # fmt: skip

_CORRECTION = re.compile(
    r"\b(?:no|not|wrong|wait|meant|mean|sorry|actually|joking|instead|but|now|anymore)\b|n't\b",
    re.IGNORECASE,
)

_QUESTION = re.compile(
    r"(?:(?:and|so|but|well|ok|okay) )*(?:what|who|which|where|when|why|how|can|could|should|may"
    r"|do|is|are|am|will|would|shall)\b",
    re.IGNORECASE,
)
_ABOUT_THE_USER = re.compile(r"\b(?:i|i'm|i've|i'd|me|my|mine|myself|we|our|us)\b", re.IGNORECASE)


def understand(sentence: str, past: Sequence[str]) -> Fact | None:
    """Return an answer from what the user said before (`past`, oldest first), if a rule has one."""
    text = strip_courtesy(normalise(sentence)).lower()
    if _NAME_ASKED.fullmatch(text):
        name = _name(past)
        if name:
            return Fact("name", name, f"Your name is {name}.")
        return None if _told_something(past) else Fact("unknown", None, UNKNOWN)
    if _UNKNOWN_ASKED.fullmatch(text) and not (_told_something(past) and _may_know(text, past)):
        return Fact("unknown", None, UNKNOWN)
    if recalled := _recalled(text, past):
        return Fact("recalled", recalled, recalled)
    return comparisons.understand(sentence, past)


def _name(past: Sequence[str]) -> str:
    """Return the name that the user gave last; empty if none, or if it may be taken back."""
    for place, text in reversed(list(enumerate(past))):
        for said in re.split(r"(?<=[.?!])\s+", text.replace("’", "'")):
            found = next((f for pattern in (*_SAID, _TYPED) if (f := pattern.match(said))), None)
            if found and not _NO_NAME.fullmatch(found["name"]):
                later = " ".join(past[place + 1 :]) + text.partition(said)[2]
                return "" if _TAKEN_BACK.search(later) else found["name"].capitalize()
    return ""


def _recalled(asked: str, past: Sequence[str]) -> str:
    """Return the user's newest clause that answers `asked`, said to them; empty if none does."""
    key = _KEY.fullmatch(asked)
    if key is None:
        return ""
    if key["from"]:
        pattern = rf"{_OWN}I(?:'m| am| come)\b[^.?!;]*?\bfrom (?P<rest>[A-Z][^.?!;]*?){_CLAUSE_END}"
        opening = "You are from"
    elif key["what"]:
        pattern = rf"(?i:^(?:\w+, )?my {key['what']} (?:is|are) )(?P<rest>[^.?!;]+?){_CLAUSE_END}"
        opening = f"Your {key['what']} is"
    else:
        place = r"(?=[^.?!;]*\b(?:in|at|on|near|for|from|to|with|by)\b)"
        where = place if asked.startswith("where") else ""
        pattern = rf"{_OWN}I (?:also |now )?{key['verb']} {where}(?P<rest>[^.?!;]+?){_CLAUSE_END}"
        opening = f"You {key['verb']}"
    for index, text in reversed(list(enumerate(past))):
        for sentence in re.split(r"(?<=[.?!])\s+", text.replace("’", "'")):
            found = re.search(pattern, sentence)
            if found and not sentence.endswith("?"):
                later = text.partition(sentence)[2] + " ".join(past[index + 1 :])
                if _CORRECTION.search(sentence) or _CORRECTION.search(later):
                    return ""
                return f"{opening} {_turned(found['rest'])}."
    return ""


def _turned(clause: str) -> str:
    """Return what the user said about themselves as it is said to them."""
    return re.sub(r"[\w']+", lambda word: _TURNED.get(word[0].lower(), word[0]), clause)


def _told_something(past: Sequence[str]) -> bool:
    """Return True if the user may have said something about themselves."""
    sentences = [one for text in past for one in re.split(r"(?<=[.?!])\s+", text)]
    return any(
        _ABOUT_THE_USER.search(one) and not (one.endswith("?") and _QUESTION.match(one))
        for one in sentences
    )


def _may_know(asked: str, past: Sequence[str]) -> bool:
    """Return False if a relative is asked for of whom no word was said."""
    said = " ".join(past)
    for kin, words in _FAMILY.items():
        if re.search(rf"\bmy (?:{kin})\b", asked):
            return re.search(words, said, re.IGNORECASE) is not None
    return True
