from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import zip_longest
from typing import TYPE_CHECKING, TypeAlias

from textual.content import Content

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

Piece: TypeAlias = str | tuple[str, str]

STYLES = {"strong_open": "bold", "em_open": "italic", "s_open": "strike", "link_open": "underline"}

INDENT = "  "


def rendered(text: str) -> Content:
    """Return `text` with its Markdown turned into styles. Loses no word."""
    pieces: list[Piece] = []
    lists: list[int | None] = []
    """the next number of each list around the block; None for bullets"""
    quotes, heading, first_of_item = 0, False, False
    tokens = _parser().parse(text)
    for token, after in zip_longest(tokens, tokens[1:]):
        match token.type:
            case "bullet_list_open":
                lists.append(None)
            case "ordered_list_open":
                lists.append(int(token.attrs.get("start", 1)))
            case "bullet_list_close" | "ordered_list_close":
                lists.pop()
            case "list_item_open" if after is not None and after.nesting < 0:
                pieces += _begin_block(pieces, lists, quotes, True)  # `42.` may be an answer
            case "list_item_open":
                first_of_item = True
            case "blockquote_open" | "blockquote_close":
                quotes += 1 if token.nesting > 0 else -1
            case "heading_open" | "heading_close":
                heading = token.nesting > 0
            case "inline" | "fence" | "code_block" | "hr":
                pieces += _begin_block(pieces, lists, quotes, first_of_item)
                first_of_item = False
                pieces += _block(token, heading, INDENT * len(lists))
            case _:
                pass
    return Content.assemble(*pieces)


def _begin_block(
    pieces: Sequence[Piece], lists: list[int | None], quotes: int, item: bool
) -> Iterator[Piece]:
    if pieces:
        yield "\n"
    if quotes:
        yield ("▌ " * quotes, "$text-muted")
    if not lists:
        return
    yield INDENT * (len(lists) - 1)
    number = lists[-1]
    if not item:
        yield INDENT
    elif number is None:
        yield "• "
    else:
        yield f"{number}. "
        lists[-1] = number + 1


def _block(token: Token, heading: bool, indent: str) -> Iterator[Piece]:
    match token.type:
        case "inline":
            yield from _inline(token.children or (), "bold" if heading else "", indent)
        case "hr":
            yield ("───", "$text-muted")
        case _:
            code = token.content.rstrip("\n").replace("\n", f"\n{indent}{INDENT}")
            yield (f"{INDENT}{code}", "$text-accent")


def _inline(tokens: Sequence[Token], style: str, indent: str) -> Iterator[Piece]:
    styles = [style] if style else []
    for token in tokens:
        match token.type:
            case "softbreak" | "hardbreak":
                yield f"\n{indent}"
            case "code_inline":
                yield (token.content, " ".join([*styles, "$text-accent"]))
            case _ if token.type in STYLES:
                styles.append(STYLES[token.type])
            case _ if token.nesting < 0:
                styles.pop()
            case _:
                yield (token.content, " ".join(styles))


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable("strikethrough")
    return parser.disable("reference")  # `[Vox]: Yes` is text, and must be shown
