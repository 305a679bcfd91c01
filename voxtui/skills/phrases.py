"""Requests in each language that a model answers in: the time, what was said, and letters.

The forms and the answers are in phrases.toml. The time in English is in clock.py.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from voxtui.dialogue.protocols import AUDIO_INPUT, Past, PastTurn
from voxtui.skills.clock import time_in
from voxtui.skills.hours import utc
from voxtui.skills.intents import Fact

SLOWER = 0.75
"""The pace of an answer that is said more slowly."""

_SIGNS = {"'": "apostrophe", "’": "apostrophe", "-": "hyphen"}
_WORD = r"[^\W\d_]+(?:['-][^\W\d_]+)*"
_QUESTION = re.compile(
    r"(?:(?:and|so|but|well|ok|okay|please) )*(?:who|whose|what|which|where|when|why|how|can|could"
    r"|do|does|did|is|are|was|were|will|would|should|may|have|has|tell me)\b",
    re.IGNORECASE,
)

_Found = Mapping[str, str]
_Answers = dict[str, str]


@dataclass(frozen=True, slots=True)
class _Language:
    code: str
    courtesy: tuple[re.Pattern[str], re.Pattern[str]]
    forms: tuple[tuple[str, re.Pattern[str]], ...]
    """the request, and a form of it"""
    answers: _Answers
    places: dict[str, str]


def understand(text: str, now: datetime, past: Past) -> Fact | None:
    """Return the answer to `text`, words without punctuation, in the language of `text`.

    `past`: the turns before, oldest first. None if no form matches, or if the answer is not known.
    """
    folded = _fold(text)
    for language in LANGUAGES:
        begin, end = 0, len(folded)
        before, after = language.courtesy
        while found := before.match(folded, begin, end):
            begin = found.end()
        while found := after.search(folded, begin, end):
            end = found.start()
        for request, form in language.forms:
            if found := form.fullmatch(folded, begin, end):
                groups = {
                    name: text[slice(*found.span(name))]
                    for name, group in found.groupdict().items()
                    if group is not None
                }
                return _answer(request, groups, language, now, past)
    return None


def _answer(
    request: str, found: _Found, language: _Language, now: datetime, past: Past
) -> Fact | None:
    answers, said = (
        language.answers,
        [one for one in past if one.user_input != "" and not one.attached],
    )
    match request:
        case "time":
            return _clock(answers, now, "", language.code)
        case "time_in":
            place = _fold(found["place"])
            there = time_in(language.places.get(place, place), utc(now))
            return there and _clock(answers, there, f" {found['where']}", language.code)
        case "repeat" | "slower":
            replies = [turn.reply_text.strip() for turn in past if turn.reply and not turn.attached]
            if not replies or not replies[-1]:
                return None
            pace = SLOWER if request == "slower" else 1.0
            return Fact("said", replies[-1], replies[-1], "", pace)
        case "said_last":
            return _quoted(answers["say"], said[-1:], language.code)
        case "said_first":
            return _quoted(answers["say_first"], said[:1], language.code)
        case "asked_last":
            return _quoted(answers["ask"], _questions(said)[-1:], language.code)
        case "asked_first":
            return _quoted(answers["ask_first"], _questions(said)[:1], language.code)
        case _:
            return _letters(request, found, language)


def _clock(answers: _Answers, time: datetime, where: str, code: str) -> Fact:
    template = answers["one" if time.hour == 1 else "clock"]
    sentence = template.format(h=time.hour, m=f"{time.minute:02}", where=where)
    return Fact("clock", f"{time:%H:%M}", sentence, code)


def _questions(said: list[PastTurn]) -> list[PastTurn]:
    """Return the questions; none if words are missing, because one of those may be the one."""
    if any(turn.user_text.startswith(AUDIO_INPUT) for turn in said):
        return []
    return [one for one in said if one.user_text.endswith("?") or _QUESTION.match(one.user_text)]


def _quoted(template: str, turns: list[PastTurn], code: str) -> Fact | None:
    if not turns or turns[0].user_text.startswith(AUDIO_INPUT):
        return None
    words = turns[0].user_text.strip()
    return Fact("said", words, template.format(words), code)


def _letters(request: str, found: _Found, language: _Language) -> Fact:
    """Spell a word, or count its letters."""
    words = found.get("quoted") or found["word"]
    letters = [[letter for letter in word if letter.isalpha()] for word in words.split()]
    count, answers = sum(map(len, letters)), language.answers
    if request == "spell":
        if language.code == "en":
            letters = [[_SIGNS.get(one, one) for one in word] for word in words.split()]
        value = ". ".join(", ".join(map(_capital, word)) for word in letters)
        return Fact("spelling", value.lower(), f"{words}: {value}.", language.code)
    if request == "count_one":
        letter = found["letter"].upper()
        count = words.upper().count(letter)
        times = {1: "once", 2: "twice"}.get(count, f"{count} times")
        return Fact("letters", count, f"{letter} is in “{words}” {times}.")
    sentence = answers["counted_one" if count == 1 else "counted"].format(words, count)
    return Fact("letters", count, sentence, language.code)


def _capital(letter: str) -> str:
    return letter.upper() if len(letter.upper()) == 1 else letter  # not `SS` for `ß`


def _fold(text: str) -> str:
    """Return `text` without accents and in lower case, character by character."""
    plain = text.replace("’", "'").replace("‘", "'")
    return "".join(unicodedata.normalize("NFD", one)[0].lower()[0] for one in plain)


def _language(code: str, table: dict[str, str | list[str]]) -> _Language:
    texts = {name: text for name, text in table.items() if isinstance(text, str)}
    no_word = rf"(?!(?:{texts.get('not_words', '')})\b)"
    word = rf"{no_word}{_WORD}"
    quoted = rf"[\"“„«] ?(?P<quoted>{_WORD}(?: {_WORD}){{,3}}) ?[\"”“»]"
    one = rf"(?:{texts.get('the_word', '')})?(?:{quoted}|['‘]?(?P<word>{word})['’]?)"
    several = rf"(?P<word>{word}(?: {word}){{1,2}})"
    forms = [
        (request, form.replace("{words}", several).replace("{word}", one))
        for request, lines in table.items()
        if isinstance(lines, list)
        for form in lines
    ]
    places = re.findall(r"([^,=]+)=([^,=]+)", " ".join(texts.get("places", "").split()))
    return _Language(
        code,
        (
            re.compile(texts.get("before", r"(?!)")),
            re.compile(rf"(?:{texts.get('after', '(?!)')})$"),
        ),
        tuple((request, re.compile(form)) for request, form in forms),
        texts,
        {place.strip(): name.strip() for place, name in places},
    )


LANGUAGES = tuple(
    _language(code, table)
    for code, table in tomllib.loads(
        Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    ).items()
)
"""The forms and answers of each language, English first."""
