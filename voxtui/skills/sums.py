"""Arithmetic: `fifteen percent of 240`, `two plus three times four`."""

from __future__ import annotations

import re
from collections.abc import Callable

from voxtui.skills.meaning import Fact, Question
from voxtui.skills.words import figure

_N = r"(?:minus |negative )?\d+(?:\.\d+)?"

_ASKED = re.compile(
    r"(?:what is|how much is|how much are|what are|calculate|compute|work out|what does) ",
    re.IGNORECASE,
)
_UNIT_OF_MONEY = r"(?: (?P<unit>euros?|dollars?|pounds?|cents?|francs?|yen|people|grams?))?"

_PERCENT = re.compile(rf"(?P<a>{_N}) (?:%|percent|per cent) of (?P<b>{_N}){_UNIT_OF_MONEY}")

_PHRASES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (rf"divide ({_N}) by ({_N})", r"\1 / \2"),
        (rf"multiply ({_N}) (?:by|with|and) ({_N})", r"\1 * \2"),
        (rf"add ({_N}) (?:and|to) ({_N})", r"\1 + \2"),
        (rf"subtract ({_N}) from ({_N})", r"\2 - \1"),
        (rf"(?:the )?sum of ({_N}) and ({_N})", r"\1 + \2"),
        (rf"(?:the )?product of ({_N}) and ({_N})", r"\1 * \2"),
        (rf"(?:the )?difference (?:between|of) ({_N}) and ({_N})", r"\1 - \2"),
        (rf"how (?:many times|often) does ({_N}) go into ({_N})", r"\2 / \1"),
        (rf"half (?:of )?({_N})", r"\1 / 2"),
        (rf"(?:double|twice) ({_N})", r"2 * \1"),
        (rf"(?:the )?square root of ({_N})", r"( \1 ) ^ 0.5"),
    )
)
_WORDS: tuple[tuple[str, str], ...] = (
    (r"\bplus\b", "+"),
    (r"\b(?:minus|less)\b", "-"),
    (r"\b(?:times|multiplied by)\b|(?<=[\d)]) x (?=[\d(])|×", " * "),
    (r"\bdivided by\b|(?<=\d) over (?=\d)|÷", " / "),
    (r"\b(?:to the power of|raised to)\b", "^"),
    (r"\bsquared\b", "^ 2"),
    (r"\bcubed\b", "^ 3"),
)
_EXPRESSION = re.compile(r"[\d.+\-*/^() ]+")
_TOKEN = re.compile(r"\d+(?:\.\d+)?|[-+*/^()]")

_LARGEST = 1e15


class _Unclear(Exception):
    """The text is not a sum."""


def understand(text: str) -> Fact | Question | None:
    """Return the result of a sum in words or signs; None if the text is not one."""
    low = text.lower()
    asked = _ASKED.match(low)
    rest = low[asked.end() :] if asked else low
    rest = re.sub(r" (?:equal|make|equals|in total)$", "", rest)
    unit = ""
    if percent := _PERCENT.fullmatch(rest):
        rest, unit = f"{percent['a']} / 100 * {percent['b']}", percent["unit"] or ""
    for pattern, replacement in _PHRASES:
        if pattern.fullmatch(rest):
            rest = pattern.sub(replacement, rest)
            break
    if asked and re.fullmatch(r"\d{1,2} ?/ ?\d{1,2}", rest):
        return None  # more likely a date: `what is 9/11`
    for pattern, sign in _WORDS:
        rest = re.sub(pattern, sign, rest)
    rest = re.sub(r"\bnegative ", "- ", rest)
    if not _EXPRESSION.fullmatch(rest) or not re.search(r"\d[ )]*[-+*/^]", rest):
        return None
    try:
        value = _evaluate(_TOKEN.findall(rest))
    except ZeroDivisionError:
        return Question("A number cannot be divided by zero.")
    except (_Unclear, OverflowError):
        return None
    if isinstance(value, complex) or abs(value) > _LARGEST:
        return Question("I cannot compute that.")
    return Fact("number", value, _sentence(value, unit))


def _sentence(value: float, unit: str) -> str:
    said = figure(value)
    exact = abs(float(said) - value) <= 1e-9 * max(1.0, abs(value))
    return f"That is {'' if exact else 'about '}{said}{f' {unit}' if unit else ''}."


def _evaluate(tokens: list[str]) -> float:
    """Compute a sum with the usual precedence. Raises _Unclear, ZeroDivisionError."""
    rest = tokens[::-1]

    def level(signs: str, operand: Callable[[], float]) -> float:
        value = operand()
        while rest and rest[-1] in signs:
            value = _apply(rest.pop(), value, operand())
        return value

    def total() -> float:
        return level("+-", product)

    def product() -> float:
        return level("*/", power)

    def power() -> float:
        value = single()
        if rest and rest[-1] == "^":
            rest.pop()
            return _apply("^", value, power())
        return value

    def single() -> float:
        token = rest.pop() if rest else ""
        if token == "-":
            return -power()
        if token == "(":
            value = total()
            if not rest or rest.pop() != ")":
                raise _Unclear
            return value
        if not token or not token[0].isdigit():
            raise _Unclear
        return float(token)

    value = total()
    if rest:
        raise _Unclear
    return value


def _apply(sign: str, left: float, right: float) -> float:
    match sign:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return left / right
        case _:
            if abs(right) > 1000:
                raise OverflowError
            return left**right
