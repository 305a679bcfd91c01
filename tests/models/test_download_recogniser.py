"""A recogniser of several files, which comes from its maker's server."""

import dataclasses
import hashlib
from pathlib import Path

import pytest

from tests.package_index import PackageIndex
from voxtui.commands.models import fetch
from voxtui.errors import InputError, ModelError
from voxtui.models.catalogue import MOONSHINE_SMALL, RECOGNISERS, ModelFile
from voxtui.models.installed import recogniser_directory
from voxtui.settings.schema import Config

pytestmark = pytest.mark.usefixtures("empty_store")

CONTENTS = {"config.json": b"{}", "encoder.ort": b"weights" * 1000}


@pytest.fixture
def server(monkeypatch):
    """Serve the two files of a small recogniser."""
    with PackageIndex() as server:
        folder = f"{server.url}/model"
        files = tuple(
            ModelFile(
                "maker/model",
                name,
                len(content),
                f"sha256:{hashlib.sha256(content).hexdigest()}",
                folder=folder,
            )
            for name, content in CONTENTS.items()
        )
        server.files = {f"/model/{name}": content for name, content in CONTENTS.items()}
        small = dataclasses.replace(RECOGNISERS[MOONSHINE_SMALL], files=files)
        monkeypatch.setitem(RECOGNISERS, MOONSHINE_SMALL, small)
        yield server


def fetch_it(source="auto", file=None):
    fetch(Config(), MOONSHINE_SMALL, source, file)


def test_the_released_files_are_downloaded_and_found(server, monkeypatch):
    with pytest.raises(ModelError, match=f"Run `voxtui models fetch {MOONSHINE_SMALL}`"):
        recogniser_directory(MOONSHINE_SMALL)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    fetch_it()
    found = recogniser_directory(MOONSHINE_SMALL)
    assert {path.name: path.read_bytes() for path in found.iterdir() if path.suffix in (".json",
            ".ort")} == CONTENTS  # fmt: skip
    assert server.tokens == []  # it is no hub
    fetch_it()
    assert len(server.requests) == len(CONTENTS)


def test_a_file_that_was_changed_is_refused_and_downloaded_again(server):
    fetch_it()
    path = recogniser_directory(MOONSHINE_SMALL) / "encoder.ort"
    path.write_bytes(b"another" * 1000)
    with pytest.raises(ModelError, match="not the released file"):
        recogniser_directory(MOONSHINE_SMALL)
    fetch_it()
    assert path.read_bytes() == CONTENTS["encoder.ort"]


def test_another_file_of_the_server_is_refused(server):
    server.files["/model/encoder.ort"] = b"another" * 1000
    with pytest.raises(ModelError, match=r"Checksum mismatch for encoder\.ort"):
        fetch_it()


def test_a_server_without_the_file_is_one_sentence(server):
    del server.files["/model/config.json"]
    with pytest.raises(ModelError, match=r"maker refuses to send config\.json \(HTTP 404"):
        fetch_it()


@pytest.mark.parametrize("options", [{"source": "packages"}, {"file": Path("a.ort")}])
def test_it_comes_from_its_maker_only(server, options):
    with pytest.raises(InputError, match="Leave out"):
        fetch_it(**options)


def test_the_sizes_of_the_files_make_up_that_of_the_model():
    model = RECOGNISERS[MOONSHINE_SMALL]
    assert abs(sum(file.size for file in model.files) - model.size) < 1_000_000
