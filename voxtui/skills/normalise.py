"""Bring a sentence into the form that the rules read: plain words, and numbers as digits.

Read and say numbers, and spans of time: `an hour and a half` is 5,400 s.

No sign is dropped that a rule would need: what is not understood stays as a word that no rule
knows, so the sentence goes to the brain.
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction

_ONES = {word: value for value, word in enumerate(re.findall(r"\w+", """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen"""))}  # fmt: skip
_TENS = {word: 10 * value for value, word in enumerate(re.findall(r"\w+", """
    twenty thirty forty fifty sixty seventy eighty ninety"""), 2)}  # fmt: skip
_SMALL = _ONES | _TENS
_SCALES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9}

# Without `second`, which is a unit of time more often. The date rules know it.
_ORDINALS = {word: value for value, word in enumerate(re.findall(r"\S+", """
    first - third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth
    fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth"""), 1)
    if word != "-"} | {"thirtieth": 30}  # fmt: skip

_SHORT = (
    (re.compile(r"[‘’]"), "'"),
    (re.compile(r"[\u2212\u2013]"), "-"),
    (re.compile(r"\b([ap])\. ?m\b\.?", re.IGNORECASE), r"\1m"),
    (re.compile(r"\b(what|who|when|where|how|it|that|there)(?:'s| is)\b", re.IGNORECASE), r"\1 is"),
    (re.compile(r"\bwhats\b", re.IGNORECASE), "what is"),
    (re.compile(r"\b(i)'d like\b", re.IGNORECASE), r"\1 would like"),
    (re.compile(r"\b(i)'ll need\b", re.IGNORECASE), r"\1 need"),
    (re.compile(r"\bo'clock\b", re.IGNORECASE), ""),
    (re.compile(r"\bper cent\b", re.IGNORECASE), "percent"),
    (re.compile(r"(?<![\w.])\.(?=\d)"), "0."),
    (re.compile(r"\$ ?(\d[\d.]*\d|\d)"), r"\1 dollars"),
    (re.compile(r"€ ?(\d[\d.]*\d|\d)"), r"\1 euros"),
    (re.compile(r"£ ?(\d[\d.]*\d|\d)"), r"\1 pounds"),
    (re.compile(r"(?<=\d) ?° ?([CF])\b"), r" degrees \1"),
    (re.compile(r"(?<=[^\W\d_])-(?=[^\W\d_])|(?<=\d)-(?=[^\W\d_])"), " "),
    (re.compile(r"(?i)(?<=\d)(?=(?:am|pm|km|kg|cm|mm|ml|mi|lbs?|oz|ft|min|h|m|g|l)\b)"), " "),
    (re.compile(r"(?<=\d)%"), " %"),
    (re.compile(r"(?<=[^\W\d_])[.?!;:]+(?=\s)|[,;:…\"“”]+(?=\s|$)|(?<=\s)[\"“”]"), " "),
    (re.compile(r"(?<=[^\W\d_])[!.?]+\s*$|(?<=[\d)=%])[.?]+\s*$"), ""),
    (re.compile(r"\ban? (?=(?:hundred|thousand|million|billion)\b)", re.IGNORECASE), "one "),
)  # fmt: skip

_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_DECIMAL = re.compile(r"\d+(?:\.\d+)?")
_PLAIN = re.compile(r"\d+(?:\.\d+)?|[-+*/%()×÷^=]")
_SIGNED = re.compile(r"[\d.+*/^()×÷=-]*[+*×÷^()=][\d.+*/^()×÷=-]*|-\d+(?:\.\d+)?")
"""A chunk such as `3+4`, which can be nothing but a sum. `10-4` and `24/7` may be other things."""

_BEFORE = re.compile(
    r"(?:(?:hey|hi|hello|ok|okay|so|well|and|now|um|uh|please|vox) )*"
    r"(?:(?:can|could|would|will) (?:you|u) (?:please )?)?(?:please )?"
    r"(?:i (?:need|want|would like) you to |help me |go ahead and )?"
    r"(?:(?:tell|give) me |do you know |let me know "
    r"|i (?:would like|want|need|wanna) (?:to )?know )?",
    re.IGNORECASE,
)
_AFTER = re.compile(r"(?: (?:please|thanks|thank you|for me|vox))+$", re.IGNORECASE)


def normalise(sentence: str) -> str:
    """Return the words of `sentence`, separated by single spaces, with numbers as digits.

    Letters keep their case. `2nd` stays an ordinal.
    """
    sentence = _THOUSANDS.sub(lambda found: found[0].replace(",", ""), sentence)
    for pattern, replacement in _SHORT:
        sentence = pattern.sub(replacement, sentence)
    chunks: list[str] = []
    for chunk in sentence.split():
        chunks += _PLAIN.findall(chunk) if _SIGNED.fullmatch(chunk) else [chunk]
    return " ".join(_digits(chunks))


def strip_courtesy(text: str) -> str:
    """Remove what only makes a request polite, from both ends of a normalised text."""
    return _AFTER.sub("", text[_BEFORE.match(text).end() :]).strip()  # type: ignore[union-attr]


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
    """Return the number that begins at `place`, the place after it, and the kind of its last word.

    The kind is empty if there is none.
    """
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
    """Return the digits behind `point`, and how many words they are: `two five`, `twenty five`."""
    first, second = _word(words, place), _ONES.get(_word(words, place + 1), 10)
    if first.isdecimal():
        return first, 1
    if first in _TENS:
        return (str(_TENS[first] + second), 2) if 0 < second < 10 else (str(_TENS[first]), 1)
    if first in _ONES and _ONES[first] > 9:
        return str(_ONES[first]), 1
    digits = ""
    while (digit := _ONES.get(_word(words, place + len(digits)), 10)) < 10:
        digits += str(digit)
    return digits, len(digits)


def _word(words: list[str], place: int) -> str:
    return words[place].lower() if place < len(words) else ""


def _suffix(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return "th"
    return {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")


def ordinal(number: int) -> str:
    """Return `22nd` for 22."""
    return f"{number}{_suffix(number)}"


MOST_DIGITS = 15
"""Most digits of a whole number that is said digit by digit."""


def figure(value: Fraction) -> tuple[str, bool]:
    """Return a number as it is said, and True if that is exact.

    At most three decimals, or three significant digits below 1.
    """
    with localcontext() as context:
        context.prec = 60
        exact = Decimal(value.numerator) / Decimal(value.denominator)
        size = exact.adjusted() if exact else 0
        if size >= MOST_DIGITS or size < -6:
            text = f"{exact:.2e}"
            digits, _, power = text.partition("e")
            said = f"{digits.rstrip('0').rstrip('.')} times 10 to the power of {int(power)}"
            return said.replace("of -", "of minus "), Fraction(Decimal(text)) == value
        short = exact.quantize(Decimal("0.001"), ROUND_HALF_UP)
        if Fraction(short) != value:
            places = Decimal("0.01") if size >= 0 else Decimal(1).scaleb(size - 2)
            short = exact.quantize(places, ROUND_HALF_UP)
        said = f"{short:f}"
        return said.rstrip("0").rstrip(".") if "." in said else said, Fraction(short) == value


def spoken_list(parts: list[str]) -> str:
    """Join parts as a sentence does: `a, b and c`."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def patterns(*texts: str) -> tuple[re.Pattern[str], ...]:
    """Compile the forms of one request, in the order in which they are tried."""
    return tuple(re.compile(text, re.IGNORECASE) for text in texts)


_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}

_UNIT = r"(?:seconds?|secs?|minutes?|mins?|hours?|hrs?|h|days?|weeks?)\b"
_AMOUNT = r"\d+(?:\.\d+)?"
_ITEM = (
    rf"(?:(?:{_AMOUNT}|an?) and a half {_UNIT}|(?:{_AMOUNT}|an?) {_UNIT}(?: and a half)?"
    rf"|half (?:an? )?{_UNIT}|a half {_UNIT}"
    rf"|(?:a |1 )?quarter(?: of)? an hour\b|3 quarters of an hour\b)"
)

SPAN = rf"(?:(?:(?<=\w) (?:and )?)?{_ITEM})+"
"""A pattern without groups: one span, in the words of `normalise`."""

VAGUE = r"(?:a few|some|several|a couple of|a bit|a while|a moment)(?: \w+)?"
"""A pattern without groups: a span of no certain length."""

_PART = re.compile(
    rf"(?P<quarters>(?:a |1 )?quarter(?: of)? an hour|3 quarters of an hour)"
    rf"|(?P<half>a half|half(?: an?)?) (?P<half_unit>{_UNIT})"
    rf"|(?:(?P<number>{_AMOUNT})|an?)(?P<and_half> and a half)? (?P<unit>{_UNIT})"
    rf"(?P<half_more> and a half)?",
    re.IGNORECASE,
)


def seconds_in(span: str) -> float:
    """Return the seconds of a text that matches SPAN."""
    total = 0.0
    for part in _PART.finditer(span):
        if part["quarters"]:
            total += 2700 if part["quarters"].startswith("3") else 900
        elif part["half"]:
            total += _unit_seconds(part["half_unit"]) / 2
        else:
            halves = 0.5 if part["and_half"] or part["half_more"] else 0.0
            total += (float(part["number"] or 1) + halves) * _unit_seconds(part["unit"])
    return total


def _unit_seconds(name: str) -> int:
    return _UNIT_SECONDS[name[0].lower()]


def say_span(seconds: float, parts: int = 2) -> str:
    """Return `1 hour and 5 minutes`: the largest units, `parts` at most, rounded down.

    Less than a second is `0 seconds`.
    """
    rest, said = int(seconds), list[str]()
    for name, size in (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1)):
        count, rest = divmod(rest, size)
        if count:
            said.append(f"{count} {name}" + ("s" if count > 1 else ""))
    return spoken_list(said[:parts]) or "0 seconds"
