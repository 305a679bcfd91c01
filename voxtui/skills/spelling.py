"""Spell a word, and count its letters."""

from __future__ import annotations

from voxtui.skills.intents import Fact
from voxtui.skills.normalise import patterns

_NO_WORD = (
    r"(?!(?:it|that|this|these|those|them|my|your|his|her|its|our|their|the|an?|all|me|you|check|out"
    r"|alphabet|english|german|french|spanish|italian|greek|hebrew|russian|arabic|latin|total|words?"
    r"|letters?|names?|there|here|something|things|correctly)\b)"
)
_QUOTE = r"[\"“”'‘’]?"
_WORD = rf"(?:the (?:word|name) )?{_QUOTE}{_NO_WORD}(?P<word>[^\W\d_]+(?:['-][^\W\d_]+)*){_QUOTE}"

_SPELL = patterns(
    rf"(?:how (?:do|would|can|should) (?:you|i|we|one) )?spell {_WORD}",
    rf"how (?:is|do you write) {_WORD} (?:spelled|spelt)",
    rf"what is the spelling of {_WORD}",
)
_COUNT = patterns(
    rf"how many letters(?: are| is| there| are there)? in {_WORD}",
    rf"how many letters does {_WORD} have",
)
_COUNT_ONE = patterns(
    rf"how many (?:letters? )?(?P<letter>[^\W\d_])(?:'?s)?(?: are| is| there)* in {_WORD}",
    rf"how (?:many times|often) does (?:the letter )?(?P<letter>[^\W\d_]) (?:appear|occur)"
    rf" in {_WORD}",
)


def understand(text: str) -> Fact | None:
    """Return the letters of a word, or how many there are; None if the text does not ask that."""
    for form in _SPELL:
        if found := form.fullmatch(text):
            letters = ", ".join(_letters(found["word"]))
            return Fact("spelling", letters, f"{found['word']}: {letters.upper()}.")
    for form in _COUNT:
        if found := form.fullmatch(text):
            count = len(_letters(found["word"]))
            letters = f"{count} letter" + ("" if count == 1 else "s")
            return Fact("letters", count, f"“{found['word']}” has {letters}.")
    for form in _COUNT_ONE:
        if found := form.fullmatch(text):
            letter = found["letter"].upper()
            count = found["word"].upper().count(letter)
            times = {1: "once", 2: "twice"}.get(count, f"{count} times")
            return Fact("letters", count, f"{letter} is in “{found['word']}” {times}.")
    return None


def _letters(word: str) -> list[str]:
    return [letter for letter in word if letter.isalpha()]
