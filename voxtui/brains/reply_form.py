"""Decide how a reply begins, by a grammar of llama.cpp, and how long it is.

A question of knowledge is answered from its subject on, one about the user that nobody has answered
by "I don't know, you haven't told me", and what could hurt somebody by a fixed text.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import repeat
from pathlib import Path

from voxtui.dialogue.protocols import AUDIO_INPUT, Past, PastTurn

LONGEST_REQUEST = 200
"""Maximum characters of a casual request; a longer text gets no form."""

LINES = 12
"""Maximum number of lines of a poem."""

_SIGNS = r"\[\]{}<>*#`\n"
"""Signs of placeholders such as [date], of lists and of code."""

_EAST_ASIAN = r"\u2E80-\u9FFF\uAC00-\uD7AF\uFF00-\uFFEF"

SPEAKABLE = rf"root ::= [^{_SIGNS}{_EAST_ASIAN}]*"
"""The grammar of replies that can be spoken, of any length. The chat model sometimes slips into
Chinese, which no voice here can speak."""

_FOREIGN = r"\u0370-\u1DFF\u2C00-\u2DFF\u2E80-\uD7FF\uE000-\uFFEF\U00010000-\U0010FFFF"
"""Letters of any script but Latin, and pictures such as emoji."""

_HAS_FOREIGN = re.compile(f"[{_FOREIGN}]")

_UNSPEAKABLE = _SIGNS + _FOREIGN
"""Characters that no reply has in a conversation in Latin letters."""

_ENDS = ".!?。।؟"
_AT_END = re.compile(rf"[{_ENDS}][\"'”’)]*\s*$")
_SENTENCE = re.compile(rf"[^\W\d_].*?[{_ENDS}]+[\"'”’)]*(?=\s|$)", re.DOTALL)
"""Matches a sentence without its beginning. It has a letter, unlike `1.` in a list."""

_INSIDE = """[0-9a-z,"'”’)]"""
"""What may follow a sign that does not end the sentence, as in 3.5 and e.g."""


@dataclass(frozen=True, slots=True)
class ReplyForm:
    """The length of a reply, and its beginning."""

    opening: str = ""
    """its first words, without a space after them"""
    most: int = 3
    """the maximum number of sentences; 0 for any number"""
    begins: tuple[str, ...] = ()
    """its beginning: one of these"""
    lines: int = 0
    """the maximum number of lines of a poem; 0 for prose"""

    def grammar(self, begun: str = "") -> str:
        """Return the grammar (GBNF) of the text after the opening, or after `begun` instead."""
        if not self.most:
            return SPEAKABLE
        begun = begun or self.opening
        if self.lines:
            line = f"[^{_UNSPEAKABLE}]"
            return rf'root ::= {line}* ("\n" "\n"? {line}+)*'
        between = bool(_AT_END.search(begun))
        rules = [
            "more ::= body (end tail)?",
            "tail ::= next*",
            rf'next ::= " " [^{_UNSPEAKABLE}{_ENDS} ] body end',
            rf'body ::= ([^{_UNSPEAKABLE}{_ENDS}] | [{_ENDS}]+ {_INSIDE} | [ap] "." [m])*',
            rf"""end ::= [{_ENDS}]+ ["'”’)]*""",
        ]
        rests = [text[len(begun) :] for text in self.begins if text.startswith(begun)]
        if between and self.most and len(_SENTENCE.findall(begun)) >= self.most:
            rules.insert(0, "root ::= tail")
        elif between:  # the sentence may still go on, as in 3.5
            rules.insert(0, f"root ::= tail | {_INSIDE} more")
        elif rests and all(rests):
            alternatives = '" | "'.join(rests)
            rules.insert(0, f'root ::= ("{alternatives}") more')
        elif begun:
            rules.insert(0, "root ::= more")
        else:  # a reply begins with no sign that ends a sentence
            rules.insert(0, f"root ::= [^{_UNSPEAKABLE} {_ENDS}] more")
        return "\n".join(rules)

    def is_complete(self, reply: str, text: str) -> bool:
        """Return True if the token `text` would begin a sentence or line too many after `reply`.

        The grammar does not count them. A model that may not begin a sentence goes on without a
        space: "asleep.uddenly".
        """
        if self.lines:
            return "\n" in text and len(re.findall("\n+", reply.rstrip())) + 1 >= self.lines
        more = self.most and text[:1].isspace() and _AT_END.search(reply)
        return bool(more) and len(_SENTENCE.findall(reply)) >= self.most


FREE = ReplyForm(most=0)

QUOTING = ReplyForm("It says that", most=2)
"""The form for a result that may quote anybody. Without it, the model reported orders in it as
done."""

UNTOLD = ReplyForm(most=2, begins=("I don't know, you haven't told me", "You haven't told me"))
"""The form for a fact about the user that nobody has told. A small model invents one, mostly if a
client's own instruction replaces our examples. After "I don't know" alone it said "how tall I am".
"""

_TABLES = tomllib.loads(Path(__file__).with_name("reply_forms.toml").read_text(encoding="utf-8"))


def _joined(words: str | list[str]) -> str:
    return words if isinstance(words, str) else "|".join(words)


def _with_parts(text: str, parts: dict[str, str | list[str]]) -> str:
    for name, part in parts.items():
        text = text.replace(f"{{{name}}}", f"(?:{_joined(part)})")
    return text


def _pattern(words: str | list[str]) -> re.Pattern[str]:
    return re.compile(_with_parts(_joined(words), _TABLES["parts"]))


_WORDS = {name: _pattern(words) for name, words in _TABLES["words"].items()}


def is_untold(words: str, past: Past, instruction: str = "") -> bool:
    """Return True if `words` ask for a fact about the user that nobody has told.

    Such a question says "I" or "my" (or "they", beside "my keys") and asks for nothing general, as
    advice is. It is told if he says something of himself beside it, if what he said before or
    `instruction` (empty for ours) shares a word with it, or if a text is attached.
    """
    parts = map(_plain, re.split("[.,;:!?]+(?: +|$)", words))
    parts = [part for part in parts if not _has(part, "aside")]
    asked = {part: question for part in parts if (question := _asked(part))}
    if not asked or any(_has(part, "frames") for part in parts):
        return False
    said = [*(_plain(turn.user_text) for turn in past[-1:]), *parts]
    last = said.index([*asked][-1])
    topics = [part for part in said[max(last - 1, 0) : last + 2] if _has(part, "topic")]
    question = asked[said[last]]
    if _has(question, "back"):
        question = " ".join((*asked.values(), *topics))
    if not _has(question, "first") or _has(question, "general"):
        return False
    rest = [part for part in parts if part not in asked and part not in topics]
    if any(_has(part, "of_user") and not _has(part, "mentions") for part in rest):
        return False
    before = ("", *(_plain(turn.user_text) for turn in past))
    if any(map(_may_tell, past, repeat(question), before)):
        return False
    about = _plain(instruction)
    return _stems(question).isdisjoint(_stems(about)) and not _has(about, "tells")


_SUFFIX = re.compile("(?:ing|ed|es|s|d|e|y)$")


def _stems(plain: str) -> set[str]:
    """Return the beginnings of the words of `plain` that say what it is about."""
    words = re.findall(r"[^\W\d_]{3,}", _WORDS["empty"].sub("", plain))
    return {_SUFFIX.sub("", word)[:4] for word in words}


_PEOPLE = [_pattern(rf"\b(?:{names})\b") for names in _TABLES["parts"]["people"]]
_THINGS = [
    (_pattern(rf"\b(?:{keys})\b"), _pattern(rf"\b(?:{keys}|{others})\b"))
    for keys, others in _TABLES["alike"]["things"]
]
_DENIED = _pattern(r"{denied}\b")
_NAMES = re.compile(r",|\w (?!I\b)[A-Z]")


def _may_tell(turn: PastTurn, question: str, before: str) -> bool:
    """Return True if what the user said in `turn`, after `before`, may answer the question."""
    words = turn.user_text
    if turn.attached or turn.calls or not words or words.startswith(AUDIO_INPUT):
        return True
    sentences = re.findall(r"[^.!?]+(?![^.!?]|[.!]*\?)", words)
    told = [_plain(one) for one in sentences if _NAMES.search(one) or not _asked(_plain(one))]
    if not _has(question, "exists"):
        told = [_DENIED.sub("", one) for one in told]
    if told and _has(told[0], "replies") and _asked(before):
        told.append(before)
    return any(_may_answer(one, question) for one in told)


def _asked(plain: str) -> str:
    """Return the question in `plain`; empty for other words."""
    found = _WORDS["asked"].match(plain) if len(plain) <= LONGEST_REQUEST else None
    return plain[found.end() :] if found else ""


def _may_answer(told: str, question: str) -> bool:
    if people := [names for names in _PEOPLE if names.search(question)]:
        return any(names.search(told) for names in people)
    if not (stems := _stems(question)):
        return _has(told, "of_user")
    alike = any(keys.search(question) and names.search(told) for keys, names in _THINGS)
    return alike or not stems.isdisjoint(_stems(told))


def with_correction(words: str, past: Past) -> str:
    """Return a question after what the user said about it and then corrected, if he did."""
    said = [turn.user_text for turn in past]
    for first, then in zip(reversed(said[:-1]), reversed(said[1:]), strict=True):
        if _has(_plain(then), "corrects") and _may_answer(_plain(first), _plain(words)):
            return f"(Before I said: {first} {then})\n{words}" if "?" in words else words
    return words


_DANGERS = tomllib.loads(Path(__file__).with_name("dangers.toml").read_text(encoding="utf-8"))


@cache
def _search(words: str) -> Callable[[str], re.Match[str] | None]:
    return re.compile(rf" (?:{_with_parts(words, _DANGERS['parts'])})\b").search


def danger_form(words: str, past: Past = ()) -> ReplyForm | None:
    """Return the form of a fixed answer if a wrong one could hurt somebody, else None."""
    if len(words) > LONGEST_REQUEST:
        return None
    plain = f" {_plain(words)}".replace("-", " ")
    does = re.search(r" do (i \w+)(?: (?:each|every) \w+)?$", plain)
    told = does and re.compile(rf"{does[1]} (?:{_DANGERS['number']})\b")  # "I take two."
    if told and any(told.match(_plain(turn.user_text)) for turn in past):
        return None
    follows = past and _search(_DANGERS["follows"])(plain)
    if follows and not danger_form(said := past[-1].user_text):  # "And with bleach?"
        plain = f" {_plain(said)}{plain}"

    def has(one: str) -> re.Match[str] | None:
        return _search(one)(plain)

    for table in (_DANGERS["despair"], _DANGERS["emergency"], _DANGERS["danger"]):
        may = "needs" not in table or has(table["needs"])
        if may and any(all(map(has, row)) for row in table["rows"]) and not has(table["unless"]):
            return ReplyForm(table["answer"], most=len(_SENTENCE.findall(table["answer"])))
    return None


def reply_form(words: str, past: Sequence[str] = ()) -> ReplyForm:
    """Return the form of the answer to the user's complete words. `past` are his earlier words."""
    if len(words) > LONGEST_REQUEST or _has(_plain(words), "harmful"):
        return FREE
    if any(map(_HAS_FOREIGN.search, (words, *past))):
        return FREE
    if subject := repeated_subject(words):
        return ReplyForm(subject)
    if _has(_plain(words), "poem"):
        return ReplyForm(lines=LINES)
    if _has(_plain(words), "story"):
        return ReplyForm("Once upon a time", most=6)
    if "?" not in words and _has(_plain(words), "sad"):
        return ReplyForm("I'm sorry to hear that")
    return ReplyForm(most=6 if _has(_plain(words), "long") else 3)


def _has(plain: str, words: str) -> bool:
    return bool(_WORDS[words].search(plain))


def _plain(words: str) -> str:
    plain = re.sub(r"[,;]+(?= )", "", words.lower().replace("’", "'").strip(" .!?"))
    return _WORDS["polite"].sub("", _WORDS["greeting"].sub("", plain))


def repeated_subject(words: str) -> str:
    """Return the beginning of the answer to a question of knowledge; empty for other words."""
    plain = _CONTRACTED.sub(r"\1 is", words.replace("’", "'").strip(" .,;:!?"))
    matches = ((pattern.fullmatch(plain), begins) for pattern, begins in _QUESTIONS)
    found = next((match.expand(begins) for match, begins in matches if match), "")
    return f"{found[:1].upper()}{found[1:]}"


_CONTRACTED = re.compile(r"^(what|who|where|how)'s\b", re.IGNORECASE)
_QUESTIONS = [(_pattern(words), begins) for words, begins in _TABLES["questions"]["rows"]]
