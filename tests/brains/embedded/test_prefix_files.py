"""The files that hold the evaluated beginning of all prompts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brains.conftest import small
from voxtui.brains.embedded import prefix_files
from voxtui.brains.embedded.chat_process import ASK, ChatRequest, Llama, Setup, chatml
from voxtui.brains.embedded.prefix_files import PrefixFile, prefix_file, remove_oldest
from voxtui.models.installed import model_file

EXAMPLES = [(f"What is {n} and {n}?", f"It is {2 * n}, I am sure of that.") for n in range(8)]
PREFIX = chatml("You are Vox. Be brief.", EXAMPLES, "")


def ask(directory: Path, between: Callable[[Llama], object] = lambda llama: None) -> list[str]:
    """Start the chat model and ask it a question. Return the tokens of the reply."""
    llama, texts = Llama(1024, PREFIX, directory, batch=3), list[str]()
    llama.load(model_file("smollm2-135m"))
    try:
        between(llama)
        sampling = small(temperature=0.0).generation.sampling()
        prompt = chatml("You are Vox. Be brief.", EXAMPLES, "What is 3 and 4?") + ASK
        request = ChatRequest(prompt, sampling, 8)
        llama.run(request, lambda done, total: False, lambda text: bool(texts.append(text)))
    finally:
        llama.close()
    return texts


@pytest.mark.slow
@pytest.mark.models
def test_the_second_start_restores_the_state_of_the_first(tmp_path: Path) -> None:
    directory = tmp_path / "prefixes"
    first = ask(directory)
    (file,) = directory.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert directory.stat().st_mode & 0o777 == 0o700
    content = file.read_bytes()
    os.utime(file, (1, 1))
    assert ask(directory) == first
    assert file.stat().st_mtime > 1  # it was used, and so is deleted later
    assert list(directory.iterdir()) == [file]  # the conversation was not written
    assert file.read_bytes() == content
    file.write_bytes(content[: len(content) // 2])
    assert ask(directory) == first
    assert [path.read_bytes() for path in directory.iterdir()] == [content]


@pytest.mark.models
def test_a_file_of_another_user_or_content_is_not_read(tmp_path: Path) -> None:
    """Native code would parse it."""
    setup = Setup(model_file("smollm2-135m"), 1024, PREFIX, tmp_path / "prefixes")
    file = prefix_file(setup, "")
    assert file is not None
    planted = file.directory / f"{file.key}-{'0' * 64}.state"
    planted.write_bytes(b"ggsq" + bytes(100))
    planted.chmod(0o600)
    assert not file.restore()
    assert not planted.exists()


def test_the_name_depends_on_all_that_the_state_depends_on(tmp_path: Path) -> None:
    weights, other = tmp_path / "a.gguf", tmp_path / "b.gguf"
    weights.write_bytes(b"1")
    other.write_bytes(b"1")

    def key(path: Path, prefix: str = "x", cache: str = "q8_0") -> str:
        file = prefix_file(Setup(path, 512, prefix, tmp_path / "prefixes"), cache)
        assert file is not None
        return file.key

    keys = [key(weights), key(other), key(weights, "y"), key(weights, "x", "f16")]
    weights.write_bytes(b"22")
    assert len({*keys, key(weights)}) == 5
    assert key(weights) == key(weights)


@pytest.mark.parametrize("kind", ["file", "link", "others may write"])
def test_without_a_private_directory_nothing_is_kept(kind: str, tmp_path: Path) -> None:
    directory, weights = tmp_path / "prefixes", tmp_path / "a.gguf"
    weights.touch()
    if kind == "file":
        directory.touch()
    elif kind == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        directory.symlink_to(tmp_path / "elsewhere")
    else:
        directory.mkdir()
        directory.chmod(0o777)
    assert prefix_file(Setup(weights, 512, "x", directory), "") is None
    assert prefix_file(Setup(weights, 512, "x", None), "") is None


def test_a_directory_that_refuses_every_change_costs_only_the_file(tmp_path: Path) -> None:
    """As a read-only file system does: it would end the process of the chat model."""
    (tmp_path / "a file").touch()
    PrefixFile(tmp_path / "a file", "key").save()


def test_the_files_that_were_not_used_for_longest_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefix_files, "LARGEST_BYTES", 25)
    for number, name in enumerate(("c.state", "a.partial", "b.state", "foreign.txt")):
        (tmp_path / name).write_bytes(bytes(10))
        os.utime(tmp_path / name, (number, number))
    remove_oldest(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a.partial", "b.state", "foreign.txt",
    ]  # fmt: skip
