"""Compare two numbers that the user gave: `Eva is nine and Tom is ten. Who is older?`"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from voxtui.skills.meaning import Fact
from voxtui.skills.words import normalise

_VERB = (
    r"(?:is|are|was|were|has|have|had|costs?|weighs?|weighed|earns?|earned|gets?|got|makes?|made"
    r"|runs?|ran|walks?|walked|swims?|swam|jumps?|jumped|drives?|drove|takes?|took|lasts?|lasted"
    r"|leaves?|left|starts?|started|begins?|began|ends?|ended|opens?|opened|closes?|closed"
    r"|arrives?|arrived|departs?|comes?|came|measures?|reads?|scores?|scored|sleeps?|slept"
    r"|works?|worked|eats?|ate|drinks?|drank|needs?|uses?|holds?|owns?|owned|sells?|sold|buys?"
    r"|bought|pays?|paid|reaches|reached|throws?|threw|shuts?|finishes|finished|can hold)"
)

_AGE = r"\b(?:is|are) (?:only |already |now )?\d+(?: years?)?(?: old)?$"
_LENGTH = (
    r"\b(?:(?:milli|centi|kilo)?met(?:re|er)s?|[ckm]?m|km|miles?|feet|foot|inch(?:es)?|yards?"
    r"|tall|high|long|wide|deep|thick|away)\b"
)
_BARE_LENGTH = r"\b(?:is|are) [12]\.\d\d$"
_AREA = r"\b(?:square|litres?|liters?|cubic|acres?|hectares?|people|inhabitants|rooms?)\b"
_WEIGHT = r"\b(?:weigh\w*|kilos?|kilograms?|kg|grams?|g|tons?|tonnes?|pounds?|lbs?|ounces?)\b"
_PRICE = r"\b(?:costs?|euros?|dollars?|pounds?|cents?|francs?|yen)\b|\b(?:is|are) \d+\.\d\d$"
_DURATION = r"\b(?:seconds?|minutes?|hours?|days?|weeks?|months?)\b"
_AT = r"\bat \d"

_MORE: dict[str, str] = {
    r"older": _AGE,
    r"taller": f"{_LENGTH}|{_BARE_LENGTH}",
    r"higher|deeper|wider|thicker|farther|further(?: away)?|farther away": _LENGTH,
    r"longer": f"{_LENGTH}|{_DURATION}",
    r"bigger|larger": f"{_LENGTH}|{_BARE_LENGTH}|{_AREA}",
    r"heavier": _WEIGHT,
    r"more expensive": _PRICE,
    r"hotter|warmer": r"\bdegrees?\b",
    r"later|last": _AT,
}
"""Comparatives that ask for the larger number, and what must stand beside both numbers."""

_LESS: dict[str, str] = {
    r"younger": _AGE,
    r"shorter": f"{_LENGTH}|{_BARE_LENGTH}|{_DURATION}",
    r"smaller": f"{_LENGTH}|{_BARE_LENGTH}|{_AREA}",
    r"lower|narrower|thinner|closer|nearer": _LENGTH,
    r"lighter": _WEIGHT,
    r"cheaper|less expensive": _PRICE,
    r"colder|cooler": r"\bdegrees?\b",
    r"earlier|1st|sooner": _AT,
}

_ASKED = re.compile(
    rf"(?:(?:and|so|then|but|now) )*(?:who|what|where"
    rf"|which(?: 1)?(?: of (?:them|these|those|the 2|my \w+|our \w+))?(?: (?!{_VERB}\b)\w+)?)"
    rf" (?P<tail>(?P<verb>{_VERB})(?: it)?(?: the)? (?P<how>.+?))"
    rf"(?: 1| of (?:them|the 2))?",
    re.IGNORECASE,
)
_OR = re.compile(r",? (\S[^,]*?) or ([^,]+?)\?*$")

_ENDS = re.compile(r"(?<=[.?!;])\s+|,\s+(?=(?:and |so )?(?:who|which|what|where)\b)", re.IGNORECASE)
_STATED = re.compile(
    r"^(?!(?:and |so |then |but )*(?:who|which|what|where|how)\b).*\d", re.IGNORECASE
)

_UNCLEAR = re.compile(
    r"\b(?:not|n't|than|twice|half|quarter|past|born|since|ago|founded|built|by|from|per|every"
    r"|am|pm|morning|noon|afternoon|evening|night|midnight|tomorrow|yesterday|today|below|under"
    r"|over|between|almost|nearly|\w+day|i|we|you|he|she|they)\b|[-+*/%]",
    re.IGNORECASE,
)
"""Words with which the larger number need not be what it seems."""

_HUNDREDTHS = re.compile(r"(\d+) (?:euros?|dollars?|pounds?|francs?|met(?:re|er)s?) (\d\d)\b")

_UNIT = re.compile(
    r"\d (?P<unit>(?:square |milli|centi|kilo)?met(?:re|er)s?|kilograms?|(?:kilo|gram|ton|tonne"
    r"|pound|ounce|mile|yard|inche?|euro|dollar|cent|franc|second|minute|hour|day|week|month"
    r"|year|degree|litre|liter)s?|feet|foot|[ckm]?m|k?g)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class _Measured:
    who: str
    value: float
    unit: str


def understand(sentence: str, past: Sequence[str]) -> Fact | None:
    """Compare the two numbers of a statement: in `sentence`, or the newest one of `past` with any.

    Returns None unless both belong to the same unit and the question to their kind.
    """
    *before, question = _sentences(sentence) or [""]
    named = _OR.search(question)
    asked = _ASKED.fullmatch(normalise(question[: named.start()] if named else question))
    if asked is None:
        return None
    statements = [*(one for text in past for one in _sentences(text)), *before]
    stated = next((one for one in reversed(statements) if _STATED.search(normalise(one))), "")
    pair = _pair(stated)
    if pair is None or (named and not _same_names(named, pair)):
        return None
    larger = _wants_larger(asked["how"].lower(), normalise(stated))
    if larger is None:
        return None
    one, other = sorted(pair, key=lambda measured: measured.value, reverse=larger)
    if one.value == other.value:
        return Fact("compare", "same", "Neither, because both numbers are the same.")
    return Fact("compare", one.who, _sentence(question, one.who, asked["tail"]))


def _sentences(text: str) -> list[str]:
    return [one for one in _ENDS.split(text.strip()) if one]


def _pair(statement: str) -> tuple[_Measured, _Measured] | None:
    # `the white one` is a thing and no number.
    statement = re.sub(r"\b(the \w+) one\b", r"\1 ones", statement, flags=re.IGNORECASE)
    joined = re.sub(r"[,;]\s+(?:and |but |while )?", " and ", statement)
    parts = re.split(r" (?:and|but|while|whereas) ", normalise(joined))
    if len(parts) != 2:
        return None
    one, other = _measured(parts[0]), _measured(parts[1])
    if one is None or other is None or one.who.lower() == other.who.lower():
        return None
    return (one, other) if not (one.unit and other.unit and one.unit != other.unit) else None


def _measured(part: str) -> _Measured | None:
    text = _HUNDREDTHS.sub(lambda found: f"{found[1]}.{found[2]} m", part)
    text = re.sub(r"\b1st\b", "first", text)
    numbers = re.findall(r"\d+(?:\.\d+)?", text)
    if len(numbers) != 1 or _UNCLEAR.search(re.sub(r"^it is ", "", text, flags=re.IGNORECASE)):
        return None
    place = re.fullmatch(r"(?:it is )?\d+ degrees? in (.+)", text, re.IGNORECASE)
    front = re.split(r"\d", text)[0]
    who = place[1] if place else re.split(rf" (?:(?:who|which) )?{_VERB}\b", front)[0]
    who = re.sub(r"(?: (?:at|only|about|for))? *$", "", who)
    unit = _UNIT.search(text)
    named = bool(who) and len(who) <= 40
    return _Measured(who, float(numbers[0]), _stem(unit["unit"]) if unit else "") if named else None


def _stem(unit: str) -> str:
    return unit.lower().removesuffix("s")


def _wants_larger(how: str, stated: str) -> bool | None:
    """Return True if the larger number is asked for, None if the numbers do not tell that."""
    stated = stated.lower()
    if found := re.fullmatch("faster|slower", how):
        return found[0] == "slower" if re.search(_DURATION, stated) else None
    ends = re.split(r" (?:and|but|while|whereas) ", stated)
    for larger, table in ((True, _MORE), (False, _LESS)):
        for words, evidence in table.items():
            if re.fullmatch(words, how):
                shown = any(re.search(evidence, end) for end in ends)
                return larger if shown and not _noon(ends, evidence) else None
    if found := re.fullmatch(r"(more|less|fewer)(?: (?P<what>\w+))?", how):
        known = found["what"] in (None, "money", "time", "far") or found["what"] in stated
        return found[1] == "more" if known else None
    return None


def _noon(ends: Sequence[str], evidence: str) -> bool:
    """Return True for twelve o'clock, which may be before or after one o'clock."""
    return evidence == _AT and any(re.search(r"\bat 12\b", end) for end in ends)


def _same_names(named: re.Match[str], pair: tuple[_Measured, _Measured]) -> bool:
    def plain(text: str) -> str:
        return re.sub(r"^(?:the|a|an|my|our) ", "", normalise(text).lower())

    return {plain(named[1]), plain(named[2])} == {plain(one.who) for one in pair}


def _sentence(question: str, who: str, tail: str) -> str:
    if re.search(r"\bwhere\b", question, re.IGNORECASE):
        return f"In {who}."
    who = re.sub(r"^(?:my|our)\b", "your", who.replace(" ones", " one"), flags=re.IGNORECASE)
    return f"{who[:1].upper()}{who[1:]} {tail.replace('1st', 'first')}."
