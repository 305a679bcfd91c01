"""Bring a sentence into the form that the rules read: plain words, and numbers as digits."""

from __future__ import annotations

import re

_SMALL = {
    word: value
    for value, word in enumerate(
        [
            "zero",
            "one",
            "two",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
            "eleven",
            "twelve",
            "thirteen",
            "fourteen",
            "fifteen",
            "sixteen",
            "seventeen",
            "eighteen",
            "nineteen",
        ]
    )
}
_TENS = {
    word: 10 * value
    for value, word in enumerate(
        ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"], 2
    )
}
_SCALES = {"hundred": 100, "thousand": 1000, "million": 1_000_000}

# Without `second`, which is a unit of time more often. The date rules know it.
_ORDINALS = {
    word: value
    for value, word in enumerate(
        [
            "first",
            "-",
            "third",
            "fourth",
            "fifth",
            "sixth",
            "seventh",
            "eighth",
            "ninth",
            "tenth",
            "eleventh",
            "twelfth",
            "thirteenth",
            "fourteenth",
            "fifteenth",
            "sixteenth",
            "seventeenth",
            "eighteenth",
            "nineteenth",
            "twentieth",
        ],
        1,
    )
    if word != "-"
} | {"thirtieth": 30}

_WORD = re.compile(r"\d+(?:[:.]\d+)*(?:st|nd|rd|th)?|[^\W\d_]+(?:'[^\W\d_]+)?|[-+*/%()×÷^]")

_SHORT = (
    (re.compile(r"[‘’]"), "'"),
    (re.compile(r"\b([ap])\. ?m\b\.?", re.IGNORECASE), r"\1m"),
    (re.compile(r"\b(what|who|when|where|how|it|that|there)'s\b", re.IGNORECASE), r"\1 is"),
    (re.compile(r"\b(i)'d like\b", re.IGNORECASE), r"\1 would like"),
    (re.compile(r"\bo'clock\b", re.IGNORECASE), ""),
    (re.compile(r"(?<=\d),(?=\d{3}\b)"), ""),
    (re.compile(r"(?<=[^\W\d_])-(?=[^\W\d_])|(?<=\d)-(?=[^\W\d_])"), " "),
    (re.compile(r"(?<=\d)(?=(?:am|pm|km|kg|cm|mm|ml|mi|lbs?|oz|ft|min|h|m|g|l)\b)"), " "),
    (re.compile(r"\ban? (?=hundred\b|thousand\b|million\b)", re.IGNORECASE), "one "),
)

_BEFORE = re.compile(
    r"(?:(?:hey|hi|hello|ok|okay|so|well|and|now|um|uh|please|vox) )*"
    r"(?:(?:can|could|would|will) you (?:please )?)?(?:please )?"
    r"(?:i (?:need|want|would like) you to |help me |go ahead and )?"
    r"(?:(?:tell|give) me |do you know |let me know |i (?:would like|want|need) to know )?",
    re.IGNORECASE,
)
_AFTER = re.compile(r"(?: (?:please|thanks|thank you|for me|vox))+$", re.IGNORECASE)


def normalise(sentence: str) -> str:
    """Return the words of `sentence`, separated by single spaces, with numbers as digits.

    Letters keep their case. Punctuation is dropped, except inside a number. `2nd` stays an ordinal.
    """
    for pattern, replacement in _SHORT:
        sentence = pattern.sub(replacement, sentence)
    return " ".join(_digits(_WORD.findall(sentence)))


def strip_courtesy(text: str) -> str:
    """Remove what only makes a request polite, from both ends of a normalised text."""
    return _AFTER.sub("", text[_BEFORE.match(text).end() :]).strip()  # type: ignore[union-attr]


class _Number:
    """A number that is being read, word by word."""

    def __init__(self) -> None:
        self.total = 0
        self.current = 0
        self.begun = False
        self.scaled = False
        """the last word was a scale, so that `and` may follow"""

    def takes(self, value: int) -> bool:
        """Return True if a number word of this value may continue the number."""
        if not self.begun:
            return True
        room = self.current % 100
        if room == 0 and (self.scaled or self.current):
            return self.scaled
        return room >= 20 and room % 10 == 0 and 0 < value < 10

    def add(self, value: int) -> None:
        self.current += value
        self.begun, self.scaled = True, False

    def scale(self, factor: int) -> None:
        if factor == 100:
            self.current = (self.current or 1) * 100
        else:
            self.total += (self.current or 1) * factor
            self.current = 0
        self.begun = self.scaled = True

    @property
    def value(self) -> int:
        return self.total + self.current


def _digits(words: list[str]) -> list[str]:
    """Replace each run of number words by its digits."""
    out: list[str] = []
    number = _Number()

    def flush(ending: str = "") -> None:
        nonlocal number
        if number.begun:
            out.append(f"{number.value}{ending}")
            number = _Number()

    for index, word in enumerate(words):
        low, after = word.lower(), words[index + 1].lower() if index + 1 < len(words) else ""
        if (value := _SMALL.get(low, _TENS.get(low))) is not None:
            if not number.takes(value):
                flush()
            number.add(value)
        elif low in _SCALES and number.begun:
            number.scale(_SCALES[low])
        elif low == "and" and number.scaled and (after in _SMALL or after in _TENS):
            continue
        elif low in _ORDINALS:
            if not number.takes(_ORDINALS[low]):
                flush()
            number.add(_ORDINALS[low])
            flush(_suffix(number.value))
        else:
            flush()
            if re.fullmatch(r"\d+", low) and after in _SCALES:
                number.add(int(low))
            else:
                out.append(word)
    flush()
    return _join_decimals(out)


def _join_decimals(words: list[str]) -> list[str]:
    """Turn `2 point 5` into `2.5`."""
    return re.sub(r"\b(\d+) point ((?:\d )*\d+)\b", _decimal, " ".join(words)).split()


def _decimal(found: re.Match[str]) -> str:
    return f"{found[1]}.{found[2].replace(' ', '')}"


def _suffix(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return "th"
    return {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")


def ordinal(number: int) -> str:
    """Return `22nd` for 22."""
    return f"{number}{_suffix(number)}"


def figure(value: float) -> str:
    """Return a number as it is said: at most two decimals, or three significant digits."""
    if value == round(value) and abs(value) < 1e15:
        return str(round(value))
    return f"{value:.2f}".rstrip("0").rstrip(".") if abs(value) >= 1 else f"{value:.3g}"


def spoken_list(parts: list[str]) -> str:
    """Join parts as a sentence does: `a, b and c`."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def patterns(*texts: str) -> tuple[re.Pattern[str], ...]:
    """Compile the forms of one request, in the order in which they are tried."""
    return tuple(re.compile(text, re.IGNORECASE) for text in texts)
