"""Compute exactly if every sign is understood: `15 percent of 240`, `2 plus 3 times 4`."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterable
from fractions import Fraction

from voxtui.skills.rules.forms import english, matches, pattern, replacements
from voxtui.skills.rules.intents import Fact, Question
from voxtui.skills.rules.spoken import figure

_FORMS = english("arithmetic")
_ASKED, _ENDING = pattern("{sum_asked} "), pattern(" {sum_ending}$")
_PHRASES, _STEPS, _WORDS = (replacements(name) for name in ("sums", "steps", "signs"))
_EXPRESSION = re.compile(r"[-+*/^()²³ ]*(?:(?:0|[1-9]\d*)(?:\.\d+)?(?:e\d)?(?= |$)[-+*/^()²³ ]*)+")
_FACTORIAL = re.compile(r"(?<![\d.])(\d|[1-4]\d) ?(?:factorial\b|!(?= [-+*/]))(?! *[!²³])")
_CERTAIN = re.compile(r"[a-z]|[+*^=×÷²³]")
"""Matches signs that make a sum certain. `3 - 2` and `16 / 9` alone may be a score or a ratio."""

_TWO_READINGS = re.compile(
    r"(?:^|[-+*/^(])-[\d.]+[\^²³]|[\^²³](?:[\d.]+\^|\^)|\^[\d.]+[²³]|\^\(.*\)[\^²³]"
    r"|[²³]{3}|\)[²³]{2}"
)
"""Matches expressions with two readings, such as `minus two squared`."""

_MOST_BITS = 4000


class _Unclear(Exception):
    """The text is not a sum, or it has two readings."""


def understand(text: str) -> Fact | Question | None:
    low = text.lower()
    asked = _ASKED.match(low)
    rest = _ENDING.sub("", low[asked.end() :] if asked else low)
    if not asked and not _CERTAIN.search(low):
        return None
    try:
        rest, *then = re.split(" (?:and )?then ", rest)
        for kind, words in () if then else matches(_FORMS, rest):
            whole = _value(words["b"])
            if kind == "root":
                return _root(whole)
            part = _value(words["a"]) * whole / 100
            return _fact(whole - part if kind == "off" else part, words["unit"])
        rest = _expanded(rest, _PHRASES) or rest
        for step in then:
            rest = f"( {rest} ) {_expanded(step, _STEPS) or step}"
        if "^" not in rest:
            rest = _FACTORIAL.sub(lambda found: str(math.factorial(int(found[1]))), rest)
        for word, sign in _WORDS:
            rest = word.sub(sign, rest)
        if not _EXPRESSION.fullmatch(rest) or not re.search(r"[\d)] *[-+*/^²³]", rest):
            return None
        return _fact(_evaluate(rest))
    except ZeroDivisionError:
        return Question("A number cannot be divided by zero.")
    except _Unclear:
        return None


def _expanded(text: str, phrases: Iterable[tuple[re.Pattern[str], str]]) -> str:
    for phrase, expression in phrases:
        if said := phrase.fullmatch(text):
            return re.sub("negative|minus", "-", said.expand(expression))
    return ""


def _value(text: str) -> Fraction:
    return _evaluate(re.sub("minus |negative ", "-", text))


def _fact(value: Fraction, unit: str = "", exact: bool = True) -> Fact:
    said, shown = figure(value)
    about = "" if exact and shown else "about "
    return Fact("number", value, f"That is {about}{said} {unit}".rstrip() + ".")


def _root(value: Fraction) -> Fact | Question:
    if value < 0:
        return Question("A negative number has no square root among the real numbers.")
    scale = 10**40
    root = Fraction(math.isqrt(value.numerator * scale**2 // value.denominator), scale)
    return _fact(root, exact=root * root == value)


def _evaluate(text: str) -> Fraction:
    text = text.replace(" ", "")
    if _TWO_READINGS.search(text):
        raise _Unclear
    source = re.sub(r"([\d.]+)([²³])([²³])", r"(\1\2)\3", text)
    source = source.replace("^", "**").replace("²", "**2").replace("³", "**3")
    try:
        return _computed(ast.parse(source, mode="eval").body, source)
    except SyntaxError as error:
        raise _Unclear from error


def _computed(node: ast.expr, source: str) -> Fraction:
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
