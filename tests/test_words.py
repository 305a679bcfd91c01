"""Names are words of the field (docs/glossary.md), not of this project alone."""

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "voxtui"

PRIVATE = {
    "asked": "the request, or its field",
    "found": "the match, the result or the path",
    "given": "attached, or the name of the argument",
    "gone": "disconnected, closed or deleted",
    "keep": "store, queue or add",
    "keeps": "stores, queues or adds",
    "kept": "stored, queued, added, or within the target",
    "one": "what it is one of",
    "said": "the words, the sentence or the transcript",
    "thing": "what it is",
    "told": "with the time, the instructions, or reported",
    "wanted": "requested or configured",
}
"""Word -> what to say instead."""

ALLOWED = {
    "one_line": "a number: one line, not several",
    "on_one_line": "a number: one line, not several",
}
"""Name -> why it may hold such a word."""


def words(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def names(path: Path) -> list[str]:
    """Return the module's name, its classes, and its public functions and methods."""
    tree = ast.parse(path.read_text())
    classes = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    functions = [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
    ]
    return [path.stem, *classes, *functions]


def private_words(path: Path) -> list[str]:
    return [
        f"{path.name}: {name}: not `{word}`, but {PRIVATE[word]}"
        for name in names(path)
        for word in sorted(PRIVATE.keys() & words(name))
        if name not in ALLOWED
    ]


@pytest.mark.parametrize("room", sorted(p for p in PACKAGE.iterdir() if p.is_dir()), ids=str)
def test_no_module_class_or_public_function_has_a_private_word(room: Path) -> None:
    assert [word for path in sorted(room.rglob("*.py")) for word in private_words(path)] == []


def test_a_private_word_is_found_in_each_kind_of_name(tmp_path: Path) -> None:
    module = tmp_path / "kept.py"
    module.write_text(
        "class _FoundItem:\n    def asked(self): ...\n    def _told(self): ...\ndef one_line(): ..."
    )
    complaints = private_words(module)
    assert [complaint.split(": ")[1] for complaint in complaints] == ["kept", "_FoundItem", "asked"]
