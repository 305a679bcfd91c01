from __future__ import annotations

import itertools
import re
from collections.abc import Generator, Iterator
from functools import cache
from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

SHORTEST_FIRST_CLAUSE = 10
"""Characters before which the first clause ends at no comma and at no subject of two words."""

LONGEST_CLAUSE = 240
"""Characters after which any clause ends at a space, because a full stop may never come."""

LONGEST_WORD = 1000
"""Characters after which a clause without a space ends, which bounds the search."""

SHORTEST_SPOKEN = 2
"""Minimum number of characters of a spoken reply."""

SHORTEST_PHRASE, SHORTEST_SUBJECT = 3, 2
"""Minimum number of words of a first clause that ends without punctuation: before a phrase, and
before a verb, where the voice's tone goes on better. A silence of 0.3 s follows "The sky"."""

SHORTEST_PIECE = 3
"""Minimum number of words of a clause that is cut between any two words."""

_ABBREVIATION = re.compile(
    r"(?:\b(?:Mr|Mrs|Ms|Dr|St|Prof|Jr|Sr|vs|etc|approx|No|e\.g|i\.e|a\.m|p\.m|U\.S)|\b[A-Z]|(?:^|\s)\d{1,2})\.$"
)
"""Matches before a full stop that ends no sentence: an abbreviation, or the list marker `1.`."""

_LONGEST_ABBREVIATION = 10

_PHRASE_START = re.compile(
    r"\s(?=(?:because|but|which|where|while|although|since|and|or|so"
    r"|(?P<verb>is|are|was|were|has|have)|in|on|at|to|by|for|from|with)(?:\s|$))"
)
"""Matches before a conjunction, preposition or verb, where a speaker may breathe without a comma.
At the end of the text the word is taken as complete, because a token rarely ends within one.
"""

# The possessive quantifiers and the look-behinds keep a run of 10,000 full stops linear.
_SENTENCE_END = re.compile(r"(?<![.!?…])[.!?…]++[\"')\]*_]*+(?=\s)|\n++")
_CLAUSE_END = re.compile(r"(?<![,;:–—])[,;:–—]++[\"')\]*_]*+(?=\s)|(?<!\d)\s[–—-]++(?=\s)")

_LAST_WORD = re.compile(r"\w+$")

_COMMA_AT_END = re.compile(r"(?<=[^\W\d])[,;]$")
"""Matches a word's comma at the end of the text."""

_WORD_GAP = re.compile(r"""(?<=[\w,;'")”’])\s(?=[\w'"(“‘])""")
"""Matches a gap between two words. A sign, as in `10 - 4`, stays with its neighbours."""

_LEANS_ON_THE_NEXT = re.compile(
    r"\b(?:a|an|the|my|your|his|her|its|our|their|this|that|of|in|on|at|to|by|for|from|with|as"
    r"|inside|into|under|over|about|between|through|than|like"
    r"|and|or|but|so|is|are|was|were|be|been|very|not|no|i|you|he|she|it|we|they)$",
    re.IGNORECASE,
)
"""Matches words after which no speaker pauses."""

_PRONOUN_AT_END = re.compile(
    r"\b(?:i|you|he|she|it|we|they|that|this|there|which|who)$", re.IGNORECASE
)
"""Matches pronouns between which and their verb no speaker breathes."""

_FULL_STOP = re.compile(r"(?:^|\s)(?!www\.)[^\s\d./:@]*[^\W\d]{3}[.!?…]$")
"""Matches a full stop at the end of the text after a word, unlike that of `100.5` or an address."""

_FENCE = re.compile(r"[ \t]*(?:```(?!.*`)|~~~)")
"""Matches a line that begins a block of code, or ends it."""

NOT_A_LIST = re.compile(r"^(\s*(?!1[.)])\d+)(?=[.)]\s)")
"""Matches a number that is an answer and not the marker of a list, which begins with 1."""

_SIGNS = {
    "-": "minus", "−": "minus", "*": "times", "/": "divided by", "≈": "about", "≤": "at most",
    "≥": "at least", "√": "the square root of", "→": "to", "#": "sharp",
}  # fmt: skip
_SIGN = re.compile(r"[−≈≤≥√→]|(?<=\d )[-*/](?= \d)|(?<=\b[A-G])#")
"""Matches signs that voices skip although the meaning depends on them."""


def clauses(texts: Iterator[str | None]) -> Generator[str, None, None]:
    """Cut streamed text into speakable clauses; joined, they are the text.

    None among the texts means that the voice is about to fall silent. If the waiting text is long
    enough, it is then cut at its last comma, else before its last phrase, else between two words.

    The first clause may end at a comma or a phrase, because its length is latency. Later clauses
    are whole sentences if the voice can wait, because they sound better. The first clause ends at
    its full stop, a later one at the space after it, which proves the end of the sentence. A block
    of code is one clause.

    The work is proportional to the text, even for one long piece or a long block of code.
    """
    waiting, search = "", _Search(first=True)
    for text in texts:
        start = 0
        if text is None:
            if (end := search.early_end(waiting)) is not None:
                yield waiting[:end]
                waiting, search = waiting[end:], _Search(first=False)
            continue
        waiting += text
        while (end := search.end(waiting, start)) is not None:
            yield waiting[start:end]
            start, search = end, _Search(first=False)
        waiting = waiting[start:]
    if waiting.strip():
        yield waiting


class _Search:
    """Finds the end of one clause in a text that grows.

    It remembers how far it has searched, so that each token does not repeat the search. Positions
    count from the start of the clause.
    """

    def __init__(self, first: bool) -> None:
        self._first = first
        self._looked = 0
        """the position before which the clause does not end"""
        self._line: int = 0
        """the start of the line that holds `_looked`"""
        self._in_code = False

    def end(self, text: str, start: int) -> int | None:
        """Return the end of the clause that begins at `start`, or None while it is unknown."""
        end = None
        if not self._in_code:
            clause = text[start : start + LONGEST_WORD]
            end = self._end_of_prose(clause, text[start + LONGEST_WORD : start + LONGEST_WORD + 1])
            end = None if end is None else start + end
        if self._in_code:
            end = self._end_of_code(text, start)
        return end

    def early_end(self, text: str) -> int | None:
        """Return where the clause at the start of `text` may end early, or None."""
        if self._in_code or _FENCE.match(text, self._line):
            return None
        commas = [match.end() for match in _CLAUSE_END.finditer(text)]
        commas += [match.end() for match in _COMMA_AT_END.finditer(text)]
        phrases = [match.start() for match in _PHRASE_START.finditer(text)]
        gaps = [
            match.start()
            for match in _WORD_GAP.finditer(text)
            if not _LEANS_ON_THE_NEXT.search(text, 0, match.start())
        ]
        for ends, words in ((commas, 1), (phrases, 2), (gaps, SHORTEST_PIECE)):
            for end in reversed(ends):
                if len(text[:end].split()) >= words and _whole_markup(text[:end]):
                    return end
        return None

    def _end_of_prose(self, clause: str, next_character: str) -> int | None:
        for match in _SENTENCE_END.finditer(clause + next_character, self._looked):
            fence = _FENCE.match(clause, self._line, match.end())
            line_ended = match[0][0] == "\n"
            if match.end() > len(clause) or (fence and not line_ended):
                break
            if not fence and _is_sentence(clause[: match.end()]):
                return match.end()
            self._looked = match.end()
            if line_ended:
                self._line = match.end()
            if fence:
                self._in_code = True
                return None
        if _FENCE.match(clause, self._line):  # unless a backtick follows in this line
            self._in_code = bool(next_character)
            return None
        if self._first and (end := _end_of_first_clause(clause, whole=not next_character)):
            return end
        if len(clause) > LONGEST_CLAUSE and (space := clause.rfind(" ", 1, LONGEST_CLAUSE)) > 0:
            return space
        return len(clause) if next_character else None

    def _end_of_code(self, text: str, start: int) -> int | None:
        """Return the end of the line that closes the block of code, and of empty lines after it."""
        line, looked = start + self._line, start + self._looked
        while (line_break := text.find("\n", looked)) >= 0:
            fence = _FENCE.match(text, line, line_break)
            line = looked = line_break + 1
            if fence:
                while text.startswith("\n", line):
                    line += 1
                return line
        self._line, self._looked = line - start, len(text) - start
        return None


def _whole_markup(text: str) -> bool:
    """Return False if `text` ends within Markdown, such as bold text or a link."""
    paired = text.count("**") % 2 == 0 and text.count("`") % 2 == 0
    return paired and text.count("[") == text.count("]")


def _is_sentence(text: str) -> bool:
    line = text.rstrip("\n")
    abbreviated = _ABBREVIATION.search(line, max(0, len(line) - _LONGEST_ABBREVIATION))
    return len(text.strip()) >= SHORTEST_SPOKEN and not abbreviated


def _end_of_first_clause(text: str, whole: bool) -> int | None:
    """Return where the first clause may end early. `whole`: no more text follows yet."""
    for match in itertools.chain(_CLAUSE_END.finditer(text), _COMMA_AT_END.finditer(text)):
        if len(text[: match.end()].strip()) >= SHORTEST_FIRST_CLAUSE:
            return match.end()
    phrases = [match for match in _PHRASE_START.finditer(text) if _ends_phrase(text, match)]
    subjects = [m for m in phrases if m["verb"] and m.start() >= SHORTEST_FIRST_CLAUSE]
    for matches, least in ((phrases, SHORTEST_PHRASE), (subjects, SHORTEST_SUBJECT)):
        for match in matches:
            if len(text[: match.start()].split()) >= least:
                return match.start()
    ended = whole and _FULL_STOP.search(text) and not _ABBREVIATION.search(text)
    return len(text) if ended else None


def _ends_phrase(text: str, start: re.Match[str]) -> bool:
    phrase = text[: start.start()]
    whole = _LAST_WORD.match(text, start.end()) and _LEANS_ON_THE_NEXT.search(phrase)
    return not whole and not _PRONOUN_AT_END.search(phrase)


def speakable(text: str) -> str:
    """Return `text` for reading aloud: without Markdown, code, bare URLs and list markers."""
    plain: list[str] = []
    blocks = _markdown().parse(text.strip())
    for block, after in zip_longest(blocks, blocks[1:]):
        plain.append("code" if block.type in ("fence", "code_block") else " ")
        if block.type == "list_item_open" and after is not None and after.nesting < 0:
            plain.append(f"{block.info}{block.markup}")  # an answer such as `42.` is not a list
        for piece in block.children or ():
            if piece.type in ("text", "code_inline"):
                plain.append(piece.content)
            elif piece.type in ("softbreak", "hardbreak"):
                plain.append(" ")
    spoken = re.sub(r"https?://\S+", "link", "".join(plain))
    spoken = _SIGN.sub(lambda sign: f" {_SIGNS[sign[0]]} ", spoken)
    return " ".join(spoken.split()) if any(c.isalnum() for c in spoken) else ""


def unfinished(text: str) -> str:
    """Return `text`, with a comma if it breaks off, so that the voice does not end a sentence."""
    return f"{text}," if text and (text[-1].isalnum() or text[-1] == "'") else text


@cache
def _markdown() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).disable("reference")  # `[Vox]: Yes` is text
