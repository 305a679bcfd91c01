"""Arithmetic: `fifteen percent of 240`, `two plus three times four`.

A sum is one only if every sign of it was understood. It is computed exactly.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable
from fractions import Fraction

from voxtui.skills.intents import Fact, Question
from voxtui.skills.normalise import figure

_N = r"(?:(?:minus|negative|-) )?(?:0|[1-9]\d*)(?:\.\d+)?"

_ASKED = re.compile(
    r"(?:(?:what is )?the answer to|what is|what are|what does|what do you get if you|how much is"
    r"|how much are|calculate|compute|work out|what(?= .* is$)) "
)
_ENDING = re.compile(r" (?:equals?|makes?|is|in total|=)$")
_MONEY = r"(?: (?P<unit>euros?|dollars?|pounds?|cents?|francs?|yen|people|grams?))?"
_PERCENT = re.compile(
    rf"(?:an? )?(?P<a>{_N}) (?:%|percent) (?P<how>of|off|off of|tip (?:on|of|for)) (?P<b>{_N})"
    rf"{_MONEY}"
)

_PHRASES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (rf"divide ({_N}) by ({_N})", r"\1 / \2"),
        (rf"multiply ({_N}) (?:by|with) ({_N})", r"\1 * \2"),
        (rf"(?:multiply|(?:the )?product of) ({_N}) and ({_N})", r"\1 * \2"),
        (rf"(?:add|(?:the )?sum of) ({_N}) (?:and|to|plus) ({_N})", r"\1 + \2"),
        (rf"subtract ({_N}) from ({_N})", r"\2 - \1"),
        (rf"how (?:many times|often) (?:does|can) ({_N}) go into ({_N})", r"\2 / \1"),
        (rf"half (?:of )?({_N})", r"\1 / 2"),
        (rf"(?:a|one|1) (?:third|3rd) of ({_N})", r"\1 / 3"),
        (rf"a quarter of ({_N})", r"\1 / 4"),
        (rf"(?:double|twice) ({_N})", r"2 * \1"),
        (rf"({_N}) (?:to the power of|raised to|to the) ({_N})", r"\1 ^ \2"),
        (rf"({_N}) to the (\d+)(?:st|nd|rd|th)(?: power)?", r"\1 ^ \2"),
    )
)
_ROOT = re.compile(rf"(?:the )?square root of ({_N})")
_WORDS = (
    (re.compile(r"\bplus\b"), "+"),
    (re.compile(r"\bminus\b"), "-"),
    (re.compile(r"\b(?:times|multiplied by)\b|(?<=[\d)]) x (?=[\d(])|×"), " * "),
    (re.compile(r"\bdivided by\b|(?<=\d) over (?=\d)|÷"), " / "),
    (re.compile(r"\bto the power of\b"), "^"),
    (re.compile(r"\bsquared\b"), "²"),
    (re.compile(r"\bcubed\b"), "³"),
    (re.compile(r"^negative "), "- "),
)
_EXPRESSION = re.compile(r"[-+*/^()²³ ]*(?:(?:0|[1-9]\d*)(?:\.\d+)?(?= |$)[-+*/^()²³ ]*)+")
_TOKEN = re.compile(r"\d+(?:\.\d+)?|[-+*/^()²³]")
_FACTORIAL = re.compile(r"(?<![\d.])(\d|[1-4]\d) ?(?:factorial\b|!(?= [-+*/]))(?! *[!²³])")
_CERTAIN = re.compile(r"[a-z]|[+*^=×÷²³]")
"""`3 - 2` and `16 / 9` alone may be a score or a ratio. With one of these they are sums."""

_TWO_READINGS = re.compile(
    r"(?:^|[-+*/^(])-[\d.]+[\^²³]|[\^²³](?:[\d.]+\^|\^)|\^[\d.]+[²³]|\^\(.*\)[\^²³]"
    r"|[²³]{3}|\)[²³]{2}"
)
"""`minus two squared`, and `two to the power of three squared`. `2 cubed squared` has one."""

_MOST_BITS = 4000


class _Unclear(Exception):
    """The text is not a sum, or it has two readings."""


def understand(text: str) -> Fact | Question | None:
    """Return the result of a sum in words or signs; None if the text is not one."""
    low = text.lower()
    asked = _ASKED.match(low)
    rest = _ENDING.sub("", low[asked.end() :] if asked else low)
    if not asked and not _CERTAIN.search(low):
        return None
    try:
        if percent := _PERCENT.fullmatch(rest):
            value = _value(percent["a"]) * _value(percent["b"]) / 100
            off = percent["how"].startswith("off")
            return _fact(_value(percent["b"]) - value if off else value, percent["unit"] or "")
        if root := _ROOT.fullmatch(rest):
            return _root(_value(root[1]))
        for pattern, replacement in _PHRASES:
            if pattern.fullmatch(rest):
                rest = pattern.sub(replacement, rest).replace("negative", "-").replace("minus", "-")
                break
        if "^" not in rest:
            rest = _FACTORIAL.sub(lambda found: str(math.factorial(int(found[1]))), rest)
        for pattern, sign in _WORDS:
            rest = pattern.sub(sign, rest)
        if not _EXPRESSION.fullmatch(rest) or not re.search(r"[\d)] *[-+*/^²³]", rest):
            return None
        return _fact(_evaluate(_TOKEN.findall(rest)), "")
    except ZeroDivisionError:
        return Question("A number cannot be divided by zero.")
    except _Unclear:
        return None


def _value(text: str) -> Fraction:
    digits = re.sub(r"minus |negative |- ", "", text)
    return Fraction(digits) if digits == text else -Fraction(digits)


def _fact(value: Fraction, unit: str, exact: bool = True) -> Fact:
    said, shown = figure(value)
    said = said.replace("-", "minus ") if said.startswith("-") else said
    about = "" if exact and shown else "about "
    return Fact("number", value, f"That is {about}{said}{f' {unit}' if unit else ''}.")


def _root(value: Fraction) -> Fact | Question:
    if value < 0:
        return Question("A negative number has no square root among the real numbers.")
    scale = 10**40
    root = Fraction(math.isqrt(value.numerator * scale**2 // value.denominator), scale)
    return _fact(root, "", exact=root * root == value)


def _evaluate(tokens: list[str]) -> Fraction:
    """Compute a sum with the usual precedence, which is Python's. Raises _Unclear."""
    text = "".join(tokens)
    if _TWO_READINGS.search(text):
        raise _Unclear
    source = re.sub(r"([\d.]+)([²³])([²³])", r"(\1\2)\3", text)
    source = source.replace("^", "**").replace("²", "**2").replace("³", "**3")
    try:
        return _computed(ast.parse(source, mode="eval").body, source)
    except SyntaxError as error:
        raise _Unclear from error


def _computed(node: ast.expr, source: str) -> Fraction:
    """Return the exact value of a part of `source`. Raises _Unclear, ZeroDivisionError."""
    match node:
        case ast.Constant():
            return Fraction(source[node.col_offset : node.end_col_offset])
        case ast.UnaryOp(ast.USub(), operand):
            return -_computed(operand, source)
        case ast.BinOp(left, sign, right) if type(sign) in _SIGNS:
            return _SIGNS[type(sign)](_computed(left, source), _computed(right, source))
        case _:
            raise _Unclear


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    size = max(base.numerator.bit_length(), base.denominator.bit_length())
    if exponent.denominator != 1 or abs(exponent) * size > _MOST_BITS:
        raise _Unclear
    return base ** int(exponent)


_SIGNS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda a, b: a / b,
    ast.Pow: _power,
}
