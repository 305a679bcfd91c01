import errno
import os
from pathlib import Path

import pytest

from tests.models.tiny_model import CONTENT, PART, PARTIAL, TINY, place_tiny
from voxtui.commands import models_command as fetch_command
from voxtui.errors import InputError, ModelError, ModelMissing
from voxtui.models import store
from voxtui.models.catalogue import Model, chat_model, models_directory, voxtral
from voxtui.models.download import download
from voxtui.models.installed import check_content, kokoro_files, model_file, voxtral_directory
from voxtui.settings.schema import Config, KokoroConfig, VoiceConfig

pytestmark = pytest.mark.usefixtures("empty_store")


def test_for_a_missing_model_the_error_names_the_command():
    with pytest.raises(ModelError, match=r"not on this machine yet.*`voxtui models fetch tiny`"):
        model_file("tiny")


def test_the_missing_size_excludes_a_partial_download():
    models_directory().mkdir(parents=True)
    (models_directory() / PARTIAL).write_bytes(CONTENT[:100])
    with pytest.raises(ModelMissing) as missing:
        model_file("tiny")
    assert missing.value.size == TINY.size - 100


@pytest.mark.parametrize(
    "find",
    [
        lambda path: model_file(f"{path}.gguf"),
        voxtral_directory,
        lambda path: kokoro_files(VoiceConfig(kokoro=KokoroConfig(model=path))),
        lambda path: download(TINY, source=Path(path)),
    ],
)
def test_the_home_of_an_unknown_user_is_a_missing_file(find):
    with pytest.raises(ModelError, match=r"There is no (model )?(file|directory)( at)? ~nobody"):
        find("~nobody-at-all/x")


@pytest.mark.parametrize(
    "find",
    [
        lambda: model_file("tiny"),
        lambda: voxtral_directory("owner/name"),
        lambda: voxtral_directory("/somewhere"),
        lambda: kokoro_files(VoiceConfig()),
    ],
)
def test_an_unreadable_directory_is_one_sentence(find, monkeypatch):
    def forbidden(path, **_):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", forbidden)
        with pytest.raises(
            ModelError, match=r"cannot be read: Permission denied, EACCES\. `ls -ld /"
        ):
            find()


def test_a_disk_that_cannot_read_the_file_is_one_sentence(monkeypatch):
    path = place_tiny()

    def broken(path):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(store, "open_content", broken)
    for read in (lambda: model_file("tiny"), lambda: check_content(path)):
        with pytest.raises(ModelError, match=r"cannot be read: Input/output error, EIO\."):
            read()


def test_the_list_does_not_fail_on_an_unreadable_directory(monkeypatch, capsys):
    def forbidden(path, **_):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", forbidden)
        patch.setattr(os, "stat", forbidden)
        fetch_command.show_models(Config())
    assert "needed, not here" in capsys.readouterr().out


def test_a_model_file_of_the_wrong_size_is_damaged():
    models_directory().mkdir(parents=True)
    (models_directory() / "tiny.gguf").write_bytes(CONTENT[:-1])
    with pytest.raises(ModelError, match=f"damaged: {TINY.size - 1} bytes instead of {TINY.size}"):
        model_file("tiny")


def test_a_model_file_of_other_content_is_damaged():
    path = place_tiny(CONTENT)
    check_content(path)
    path.write_bytes(CONTENT[:-1] + b"?")
    with pytest.raises(ModelError, match=r"Checksum mismatch for .*Delete it, then .* fetch tiny`"):
        check_content(path)


def test_a_model_file_of_the_user_may_have_any_content(tmp_path):
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    check_content(tmp_path / "tiny.gguf")


def test_for_an_unknown_name_the_error_lists_the_known_ones():
    for call in (model_file, chat_model):
        with pytest.raises(ModelError, match=r"no chat model named gpt.*qwen2\.5-coder-1\.5b"):
            call("gpt")


def test_any_gguf_file_may_be_given_by_path(tmp_path, monkeypatch):
    (tmp_path / "mine.gguf").write_bytes(CONTENT)
    assert model_file(str(tmp_path / "mine.gguf")) == tmp_path / "mine.gguf"
    monkeypatch.chdir(tmp_path)
    assert model_file("mine.gguf").samefile(tmp_path / "mine.gguf")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert model_file("~/mine.gguf") == tmp_path / "mine.gguf"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "There is no model file at"),
        (b"", "is not a GGUF model file"),
        (b"PK\3\4" + bytes(100), "is not a GGUF model file"),
        (b"GGUF\3\0\0\0", "is cut short"),
    ],
)
def test_a_file_of_another_format_is_refused(tmp_path, content, sentence):
    path = tmp_path / "mine.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelError, match=sentence):
        model_file(str(path))


def test_a_release_that_is_cut_short_is_recognised_by_its_name(tmp_path):
    (tmp_path / "tiny.gguf").write_bytes(CONTENT[:PART])
    with pytest.raises(ModelError, match="is cut short"):
        model_file(str(tmp_path / "tiny.gguf"))


def test_a_missing_file_for_from_is_refused_even_if_the_model_is_here(monkeypatch):
    monkeypatch.setattr(fetch_command.installed, "model_file", lambda name: Path("here"))
    with pytest.raises(InputError, match="there is no such file"):
        fetch_command.fetch(Config(), None, "auto", Path("nowhere.gguf"))
    for path in (Path("/dev/zero"), Path("/")):
        with pytest.raises(InputError, match="is not a regular file"):
            fetch_command.fetch(Config(), None, "auto", path)


def test_a_directory_is_not_a_model_file(tmp_path):
    with pytest.raises(ModelError, match="is a directory"):
        model_file(str(tmp_path))


def test_a_voxtral_of_another_owner_has_a_directory_of_its_own():
    ours, theirs = (voxtral(f"{owner}/Voxtral") for owner in ("mistralai", "somebody"))
    assert isinstance(ours, Model) and ours.path == models_directory() / "Voxtral"
    assert isinstance(theirs, Model) and theirs.path == models_directory() / "somebody" / "Voxtral"
