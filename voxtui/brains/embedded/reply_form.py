"""The form of a reply, as a grammar of llama.cpp: its length, and how it may not begin.

A grammar costs no token of the prompt, unlike words about the same. A small model heeds it, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

IN_VERSE = "(Answer with four short lines that rhyme.)"
"""Stands behind a request for a poem, because a grammar cannot rhyme."""

_POEM = re.compile(r"\b(?:write|make|tell|give|recite|invent)\b.*\bpoem\b", re.IGNORECASE)

_AT_LENGTH = re.compile(
    r"\b(?:tell|make up|write|invent|read)\b.*\b(?:story|tale)\b"
    r"|\b(?:what|and then what then) happened\b(?=.*\b(?:next|then|after)\b)"
    r"|\bthen what happened\b|\bwhat happens (?:next|then)\b|\b(?:go on|continue) with the story\b"
    r"|\bstep by step\b|\b(?:hour by hour|day by day)\b|\brecipe\b"
    r"|\b(?:help|make|give|need|want|write|can|could|please)\b.*\bplan\b|^plan\b"
    r"|\bhow (?:do|can|should|would) (?:i|you|we|one) (?!say\b|spell\b|pronounce\b|know\b"
    r"|feel\b|do\b|like\b|look\b|think\b|get to\b|call\b|write\b)\w+"
    r"|\bhow to (?!say\b|spell\b)\w+",
    re.IGNORECASE,
)
"""Requests for a plan, a story or steps, whose answer needs more than a sentence."""

LONGEST_REQUEST = 200
"""characters; a longer text is not asked in passing"""

_UNHELPFUL = (
    "Absolutely",
    "As a language",
    "As an AI",
    "Certainly",
    "Good job",
    "Good work",
    "Great job",
    "I apologize",
    "I can help",
    "I'd be happy",
    "I'm sorry, I",
    "I'm sorry, but",
    "Of course",
    "Ofcourse",
    "Sorry, but",
    "Sure",
)
"""Beginnings of refusals and of empty promises, and praise for asking."""

_HARMFUL = re.compile(
    r"\b(?:kill|murder|suicide|harm|hurt|attack|shoot|bomb|explosives?|weapons?|guns?|poison|drugs?"
    r"|steal|hack|break into|blackmail|launder|porn\w*|sex\w*|rape|racist|nazis?)",
    re.IGNORECASE,
)
"""Words of requests that the model may refuse in its own way."""

_MIRRORED = {"i": "you", "i'm": "you're", "my": "your", "our": "your", "we": "you"}

_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")

_UNSPEAKABLE = r"\[\]{}<>*#`\n"
"""Characters of placeholders such as [date], of lists and of code."""

SPEAKABLE = rf"root ::= [^{_UNSPEAKABLE}]*"
"""The grammar of replies that can be spoken, of any length."""

_ENDS = ".!?。।؟"
_END = re.compile(rf"[{_ENDS}]+[\"'”’)]*(?=\s|$)")

_SENTENCES = rf"""next ::= " " body end
body ::= ([^{_UNSPEAKABLE}{_ENDS}] | [{_ENDS}]+ [^{_UNSPEAKABLE}{_ENDS} ])*
end ::= [{_ENDS}]+ ["'”’)]*"""


@dataclass(frozen=True, slots=True)
class ReplyForm:
    """How long a reply is, and how it does not begin."""

    least: int = 0
    """sentences"""
    most: int = 0
    """sentences; 0: any number"""
    avoided: tuple[str, ...] = ()
    """beginnings that it may not have"""

    def grammar(self, beginning: str = "") -> str:
        """Return the grammar (GBNF) of what may follow the `beginning` of a reply."""
        if not self.most:
            return SPEAKABLE
        ends = list(_END.finditer(beginning))
        between = bool(ends) and ends[-1].end() == len(beginning.rstrip())
        complete = len(ends) - between
        needed = max(0, self.least - complete - 1)
        optional = max(0, self.most - complete - 1 - needed)
        tail = " ".join(["next"] * needed + [f"next{{0,{optional}}}"])
        rules = [
            f"more ::= body {'end tail' if needed else '(end tail)?'}",
            f"tail ::= {tail}",
            _SENTENCES,
        ]
        if between:  # the sentence may still go on, as in 3.5
            rules.insert(0, f"root ::= tail | [^{_UNSPEAKABLE} ] more")
        elif beginning:
            rules.insert(0, "root ::= more")
        else:
            rules = [*_not_begun_by(self.avoided), *rules]
        return "\n".join(rules)


ANY_FORM = ReplyForm()


def reply_form(words: str) -> ReplyForm:
    """Return the form of the answer to the user's complete words."""
    if len(words) > LONGEST_REQUEST or _POEM.search(words):
        return ANY_FORM
    least, most = (3, 7) if _AT_LENGTH.search(words) else (1, 3)
    refusable = _HARMFUL.search(words)
    return ReplyForm(least, most, () if refusable else (*_UNHELPFUL, *_parroted(words)))


def with_note(words: str) -> str:
    """Return the user's words, with a note behind them if they ask for a poem."""
    is_poem = len(words) <= LONGEST_REQUEST and _POEM.search(words)
    return f"{words.strip()}\n{IN_VERSE}" if is_poem else words


def _parroted(words: str) -> tuple[str, ...]:
    """Return how a reply would begin that says a statement of the user again."""
    first = words.replace("’", "'").split(maxsplit=3)
    if "?" in words or len(first) < 4 or not all(map(_WORD.fullmatch, first[:2])):
        return ()
    mirrored = " ".join(_MIRRORED.get(word.lower(), word) for word in first[:2])
    return " ".join(first[:2]), mirrored[0].upper() + mirrored[1:]


def _not_begun_by(beginnings: tuple[str, ...]) -> list[str]:
    """Return the rules of texts with none of the `beginnings`: a tree of their characters."""
    prefixes = sorted({text[:length] for text in beginnings for length in range(len(text))} | {""})
    names = {
        prefix: f"begun{number}" if number else "root" for number, prefix in enumerate(prefixes)
    }
    rules: list[str] = []
    for prefix, name in names.items():
        longer = [text for text in beginnings if text.startswith(prefix) and text != prefix]
        letters = sorted({text[len(prefix)] for text in longer})
        none = "" if prefix else f" {_ENDS}"  # a reply begins with neither
        forms = [f"[^{_UNSPEAKABLE}{none}{''.join(letters)}] more"]
        forms += [
            f'"{letter}" {names[prefix + letter]}' for letter in letters if prefix + letter in names
        ]
        rules.append(f"{name} ::= {' | '.join(forms)}")
    return rules
