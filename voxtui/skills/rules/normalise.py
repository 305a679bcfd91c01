from __future__ import annotations

import re
from decimal import Decimal

from voxtui.skills.rules.forms import ENGLISH, pattern, replacements
from voxtui.skills.rules.spoken import ordinal

_NUMBERS: dict[str, str] = ENGLISH["numbers"]
_ONES = {word: value for value, word in enumerate(_NUMBERS["ones"].split())}
_TENS = {word: 10 * value for value, word in enumerate(_NUMBERS["tens"].split(), 2)}
_SMALL = _ONES | _TENS
_SCALES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9}
# Without `second`, which is a unit of time more often. The date rules know it.
_ORDINALS = {
    word: value for value, word in enumerate(_NUMBERS["ordinals"].split(), 1) if word != "second"
} | {"thirtieth": 30}
_SPELLING = replacements("spelling")
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_DECIMAL = re.compile(r"\d+(?:\.\d+)?")
_PLAIN = re.compile(r"\d+(?:\.\d+)?|[-+*/%()×÷^=]")
_SIGNED = re.compile(r"[\d.+*/^()×÷=-]*[+*×÷^()=][\d.+*/^()×÷=-]*|-\d+(?:\.\d+)?")
"""Matches a chunk such as `3+4`, which must be a sum. `10-4` and `24/7` may be something else."""

_BEFORE, _AFTER = pattern("^{courtesy}"), pattern("(?: {thanks})+$")


def normalise(sentence: str) -> str:
    """Return the words of `sentence`, separated by single spaces, with numbers as digits.

    It drops no sign that a rule would need, so a sentence that no rule knows stays unknown.
    """
    sentence = _THOUSANDS.sub(lambda found: found[0].replace(",", ""), sentence)
    for spelling, replacement in _SPELLING:
        sentence = spelling.sub(replacement, sentence)
    chunks: list[str] = []
    for chunk in sentence.split():
        chunks += _PLAIN.findall(chunk) if _SIGNED.fullmatch(chunk) else [chunk]
    return " ".join(_digits(chunks))


def strip_courtesy(text: str) -> str:
    return _AFTER.sub("", _BEFORE.sub("", text)).strip()


def _digits(words: list[str]) -> list[str]:
    out: list[str] = []
    place = 0
    while place < len(words):
        value, after, last = _number(words, place)
        more = _ORDINALS.get(_word(words, after), 0)
        if not last:
            out.append(ordinal(more) if more else words[place])
            after = place + 1
        elif more and (last == "scale" or (last == "tens" and more < 10)):
            out.append(ordinal(int(value) + more))
            after += 1
        else:
            out.append(f"{value:f}" if value % 1 else str(int(value)))
        place = after
    return out


def _number(words: list[str], place: int) -> tuple[Decimal, int, str]:
    """Return the number at `place`, the index after it, and the kind of its last word, if any."""
    total = group = Decimal(0)
    kind, smallest, sure = "", 10**12, (Decimal(0), place, "")
    while True:
        word, after = _word(words, place), _word(words, place + 1)
        small, scale = _SMALL.get(word), _SCALES.get(word, 0)
        if kind == "scale":
            sure = total + group, place, kind
        if small is not None and (kind in ("", "scale") or (kind == "tens" and 0 < small < 10)):
            group, kind, place = group + small, "tens" if small >= 20 else "ones", place + 1
        elif not kind and _DECIMAL.fullmatch(word) and (after in _SCALES or after == "point"):
            group, kind, place = Decimal(word), "ones", place + 1
        elif word == "point" and kind in ("", "ones", "tens"):
            digits, count = _after_point(words, place + 1)
            if not digits:
                break
            group, kind, place = group + Decimal(f"0.{digits}"), "point", place + 1 + count
        elif word == "and" and kind == "scale" and after in _SMALL:
            group, place = group + _SMALL[after], place + 2
            kind = "tens" if _SMALL[after] >= 20 else "ones"
        elif scale and kind:
            hundreds = scale == 100 and (group >= 100 or kind in ("scale", "point"))
            if hundreds or (group and scale >= smallest):
                # `two thousand one million` and `one hundred and two hundred` are two numbers.
                return sure
            if scale == 100:
                group *= 100
            elif group:
                total, group, smallest = total + group * scale, Decimal(0), scale
            else:
                total *= scale  # `one thousand million`
            kind, place = "scale", place + 1
        else:
            break
    return total + group, place, kind


def _after_point(words: list[str], place: int) -> tuple[str, int]:
    if (first := _word(words, place)).isdecimal():
        return first, 1
    digits = ""
    while (digit := _ONES.get(_word(words, place + len(digits)), 10)) < 10:
        digits += str(digit)
    return digits, len(digits)


def _word(words: list[str], place: int) -> str:
    return words[place].lower() if place < len(words) else ""


_QUARTER = pattern("{quarter}")
_COUNTED = pattern(
    r"(?:(?P<half>(?:a )?half(?: an?)?)|(?P<count>{number})|an?)(?P<before> and a half)?"
    r" (?P<unit>{unit})(?P<after> and a half)?"
)
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def seconds_in(span: str) -> float:
    """Return the seconds of a `span` of the forms: 5,400 for `1 hour and a half`."""
    span = _QUARTER.sub(lambda said: f"{45 if said[0].startswith('3') else 15} minutes", span)
    total = 0.0
    for item in _COUNTED.finditer(span):
        count = 0.5 if item["half"] else float(item["count"] or 1)
        if item["before"] or item["after"]:
            count += 0.5
        total += count * _UNIT_SECONDS[item["unit"][0].lower()]
    return total
