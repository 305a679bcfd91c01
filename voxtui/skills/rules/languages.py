"""Answer about the time, the user's earlier words and letters, in each language of a model."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from voxtui.dialogue.protocols import AUDIO_INPUT, Past, PastTurn
from voxtui.skills.local_time import utc
from voxtui.skills.rules.clock import time_in
from voxtui.skills.rules.forms import Forms, compile_forms, matches, read_tables
from voxtui.skills.rules.intents import Fact

SLOWER = 0.75
"""The pace of an answer that is requested more slowly."""

_ABOUT_THE_PAST = {"repeat", "slower", "said_last", "said_first", "asked_last", "asked_first"}
_SIGNS = {"'": "apostrophe", "’": "apostrophe", "-": "hyphen"}
_WORD_PARTS = {
    "letters": r"[^\W\d_]+(?:['-][^\W\d_]+)*",
    "free": r"(?!{not_words}\b){letters}",
    "quoted": r"[\"“„«] ?{letters}(?: {letters}){,3} ?[\"”“»]",
    "one_word": r"(?:{the_word})?(?:{quoted}|['‘]?{free}['’]?)",
    "two_words": r"{free}(?: {free}){1,2}",
}
_QUESTION = re.compile(
    r"(?:(?:and|so|but|well|ok|okay|please) )*(?:who|whose|what|which|where|when|why|how|can|could"
    r"|do|does|did|is|are|was|were|will|would|should|may|have|has|tell me)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class _Language:
    code: str
    before: re.Pattern[str]
    after: re.Pattern[str]
    """the pattern of courtesy around a request"""
    forms: Forms
    texts: dict[str, str]
    """the answers, and the other texts of the table"""
    places: dict[str, str]
    """the English names of places"""


def understand(text: str, now: datetime, past: Past) -> Fact | None:
    """Return the answer to `text`, words without punctuation, in its language, or None."""
    folded = _fold(text)
    for language in LANGUAGES:
        begin, end = language.before.match(folded).end(), len(folded)  # type: ignore[union-attr]
        if courtesy := language.after.search(folded, begin):
            end = courtesy.start()
        for request, words in matches(language.forms, folded[begin:end]):
            return _answer(request, words, text[begin:end], language, now, past)
    return None


def _answer(
    request: str,
    words: Mapping[str, str],
    text: str,
    language: _Language,
    now: datetime,
    past: Past,
) -> Fact | None:
    texts = language.texts
    turns = [turn for turn in past if turn.user_input != "" and not turn.attached]
    is_first = all(turn.attached for turn in past)
    if is_first and request in _ABOUT_THE_PAST:  # a model would tell an example of its prompt
        return Fact("said", "", texts["nothing_said"], language.code)
    match request:
        case "time":
            return _clock(language, now, "")
        case "time_in":
            there = time_in(language.places.get(words["place"], words["place"]), utc(now))
            return there and _clock(language, there, f" {_as_in(text, words['where'])}")
        case "repeat" | "slower":
            replies = [turn.reply_text.strip() for turn in past if turn.reply and not turn.attached]
            if not replies or not replies[-1]:
                return None
            return Fact("said", replies[-1], replies[-1], "", SLOWER if request == "slower" else 1)
        case "said_last" | "said_first" | "asked_last" | "asked_first":
            about, _, which = request.partition("_")
            turns = _questions(turns) if about == "asked" else turns
            turn = turns[0 if which == "first" else -1] if turns else None
            if turn is None or turn.user_text.startswith(AUDIO_INPUT):
                return None
            said = turn.user_text.strip()
            return Fact("said", said, texts[f"you_{request}"].format(said), language.code)
        case _:
            word = re.sub(texts.get("the_word", r"(?!)"), "", words["word"], count=1)
            word = _as_in(text, word.strip("\"“”„«»'‘’ "))
            return _letters(request, word, words.get("letter", ""), language)


def _as_in(text: str, part: str) -> str:
    """Return a part of the folded text with its accents and capitals."""
    begin = _fold(text).rindex(part)
    return text[begin : begin + len(part)]


def _clock(language: _Language, time: datetime, where: str) -> Fact:
    template = language.texts["one" if time.hour == 1 else "clock"]
    sentence = template.format(h=time.hour, m=f"{time.minute:02}", where=where)
    return Fact("clock", f"{time:%H:%M}", sentence, language.code)


def _questions(said: list[PastTurn]) -> list[PastTurn]:
    """Return the questions; none if a turn's words are missing, as it may be a question."""
    if any(turn.user_text.startswith(AUDIO_INPUT) for turn in said):
        return []
    return [one for one in said if one.user_text.endswith("?") or _QUESTION.match(one.user_text)]


def _letters(request: str, words: str, letter: str, language: _Language) -> Fact:
    letters = [[letter for letter in word if letter.isalpha()] for word in words.split()]
    count = sum(map(len, letters))
    if request == "spell":
        if language.code == "en":
            letters = [[_SIGNS.get(one, one) for one in word] for word in words.split()]
        large = [[c.upper() if len(c.upper()) == 1 else c for c in word] for word in letters]
        value = ". ".join(map(", ".join, large))
        return Fact("spelling", value.lower(), f"{words}: {value}.", language.code)
    if request == "count_one":
        count = words.upper().count(letter.upper())
        times = {1: "once", 2: "twice"}.get(count, f"{count} times")
        return Fact("letters", count, f"{letter.upper()} is in “{words}” {times}.")
    template = language.texts["counted_one" if count == 1 else "counted"]
    return Fact("letters", count, template.format(words, count), language.code)


def _fold(text: str) -> str:
    """Return `text` without accents and in lower case, character by character."""
    plain = re.sub("[’‘]", "'", text)
    return "".join(unicodedata.normalize("NFD", one)[0].lower()[0] for one in plain)


def _language(code: str, table: dict[str, str | list[str]]) -> _Language:
    texts = {name: text for name, text in table.items() if isinstance(text, str)}
    lines = {name: lines for name, lines in table.items() if isinstance(lines, list)}
    parts = _WORD_PARTS | {"not_words": "(?!)", "the_word": "(?!)"} | texts
    places = re.findall(r"([^,=]+)=([^,=]+)", " ".join(texts.get("places", "").split()))
    return _Language(
        code,
        re.compile(f"(?:{texts.get('before', '(?!)')})*"),
        re.compile(f"(?:{texts.get('after', '(?!)')})+$"),
        compile_forms(lines, parts, flags=0),
        texts,
        {place.strip(): name.strip() for place, name in places},
    )


LANGUAGES = tuple(_language(code, table) for code, table in read_tables("languages.toml").items())
