"""`voxtui models fetch` without a name: the general model of the hub, or its packaged sibling."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Literal

import pytest

from tests.brains.embedded.scripted import ScriptedChat, ScriptedRecogniser
from tests.deadline import SECONDS
from tests.models.tiny_model import CONTENT, PARTS, TINY
from tests.package_index import PackageIndex
from voxtui.brains.embedded.embedded_brain import EmbeddedBrain
from voxtui.commands.models_command import fetch, list_models
from voxtui.errors import InputError, ModelError
from voxtui.models import hub as hub_module
from voxtui.models.catalogue import CHAT_MODELS, GENERAL, PACKAGED, Model
from voxtui.models.download import download
from voxtui.models.installed import chat_model_name, model_file
from voxtui.models.packages import Packages
from voxtui.models.store import Report, partial_path
from voxtui.settings.schema import AUTO, BrainConfig, Config, EmbeddedBrainConfig, VoiceConfig

pytestmark = pytest.mark.usefixtures("empty_store")

GENERAL_CONTENT = b"GGUF" + CONTENT[::-1]
ON_HUB = "/someone/general/resolve/main/general.gguf"


@pytest.fixture(autouse=True)
def siblings(empty_store: None, monkeypatch: pytest.MonkeyPatch) -> tuple[Model, Model]:
    """Put two small models in place of the siblings."""
    assert TINY.file is not None
    digest = f"sha256:{hashlib.sha256(GENERAL_CONTENT).hexdigest()}"
    size = len(GENERAL_CONTENT)
    file = replace(
        TINY.file, repository="someone/general", path="general.gguf", size=size, digest=digest
    )
    general = replace(TINY, name=GENERAL, files=(replace(file, parts=()),), size=size)
    packaged = replace(TINY, name=PACKAGED)
    monkeypatch.setitem(CHAT_MODELS, GENERAL, general)
    monkeypatch.setitem(CHAT_MODELS, PACKAGED, packaged)
    return general, packaged


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    """Serve a hub that has the general model, and an index with the packages of the other."""
    with PackageIndex(files={ON_HUB: GENERAL_CONTENT}) as index:
        for n, content in enumerate(PARTS):
            index.add(f"tiny-part{n}", "1.0", {f"tiny_part{n}/part.bin": content})
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"{index.url}/simple")
        monkeypatch.setenv("PIP_INDEX_URL", f"{index.url}/simple")
        monkeypatch.setenv("HF_ENDPOINT", index.url)
        monkeypatch.setattr(hub_module, "PROBE_SECONDS", SECONDS)
        yield index


@pytest.fixture
def packages_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the installer, which takes a second, by its result."""

    def append(packages: Packages, model: Model, file: BinaryIO, report: Report) -> None:
        report(file.write(CONTENT))

    monkeypatch.setattr(Packages, "append_parts", append)


def test_the_siblings_share_a_template(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert CHAT_MODELS[GENERAL].opening == CHAT_MODELS[PACKAGED].opening
    assert CHAT_MODELS[GENERAL].licence == CHAT_MODELS[PACKAGED].licence
    assert not CHAT_MODELS[GENERAL].file.parts
    assert CHAT_MODELS[PACKAGED].file.parts


def test_the_general_model_comes_from_a_hub_that_answers(
    hub: PackageIndex, capsys: pytest.CaptureFixture[str]
) -> None:
    fetch(Config(), None, "auto", None)
    assert model_file(AUTO).read_bytes() == GENERAL_CONTENT
    said = capsys.readouterr().err
    assert said.startswith(f"The hub answers, so voxtui fetches {GENERAL}, ")
    assert f"Fetching {GENERAL}: " in said
    assert hub.paths("/simple") == []
    asked = len(hub.requests)
    fetch(Config(), None, "auto", None)
    assert capsys.readouterr().err == f"{GENERAL} is here already: {model_file(AUTO)}\n"
    assert len(hub.requests) == asked


def test_the_packages_are_the_way_out_when_the_hub_lacks_it(
    hub: PackageIndex, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from voxtui.models import packages

    found = packages.importlib.util.find_spec
    monkeypatch.setattr(  # uv is quicker
        packages.importlib.util, "find_spec", lambda name: None if name == "pip" else found(name)
    )
    monkeypatch.setenv("PATH", str(Path(packages.sys.executable).parent), prepend=":")
    hub.files.pop(ON_HUB)
    fetch(Config(), None, "auto", None)
    assert model_file(AUTO).read_bytes() == CONTENT
    assert chat_model_name(AUTO) == PACKAGED
    first, second = capsys.readouterr().err.splitlines()
    assert first == (
        "The hub refuses to send general.gguf (HTTP 404, Not Found). "
        f"So voxtui fetches {PACKAGED} from Python packages. "
        f"`voxtui models fetch {GENERAL}` tries the hub again."
    )
    assert second.startswith(f"Fetching {PACKAGED}: ")


@pytest.mark.usefixtures("packages_at_once")
@pytest.mark.parametrize(
    ("failure", "why"),
    [
        ("refused", "The hub cannot be reached: Connection refused, ECONNREFUSED."),
        ("hangs", "The hub does not answer within 0.2 seconds."),
        ("breaks", "The connection to the hub broke during the download of general.gguf."),
        ("other content", "Checksum mismatch for general.gguf."),
        ("gated", "someone/general is gated: "),
        ("offline", "HF_HUB_OFFLINE forbids requests to the hub."),
    ],
)
def test_one_sentence_says_why_it_is_the_packaged_model(
    hub: PackageIndex,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    siblings: tuple[Model, Model],
    failure: str,
    why: str,
) -> None:
    match failure:
        case "refused":
            with PackageIndex() as closed:
                monkeypatch.setenv("HF_ENDPOINT", closed.url)
        case "hangs":
            monkeypatch.setattr(hub_module, "PROBE_SECONDS", 0.2)
            hub.holds[ON_HUB] = threading.Event()
        case "breaks":
            hub.breaks_after[ON_HUB] = 1000
        case "other content":
            hub.files[ON_HUB] = bytes(len(GENERAL_CONTENT))
        case "gated":
            hub.refuses[ON_HUB] = 403, "GatedRepo"
        case _:
            monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    fetch(Config(), None, "auto", None)
    assert model_file(AUTO).read_bytes() == CONTENT
    told = [line for line in capsys.readouterr().err.splitlines() if "So voxtui fetches" in line]
    assert [line.startswith(why) for line in told] == [True]
    kept = 1000 if failure == "breaks" else 0
    assert kept == (partial.stat().st_size if (partial := half(siblings)).exists() else 0)
    assert bool(hub.requests) == (failure not in ("refused", "offline"))


def half(siblings: tuple[Model, Model]) -> Path:
    return partial_path(siblings[0].path)


@pytest.mark.usefixtures("packages_at_once")
def test_a_download_that_the_hub_broke_off_goes_on_by_name(
    hub: PackageIndex, siblings: tuple[Model, Model]
) -> None:
    hub.breaks_after[ON_HUB] = 1000
    fetch(Config(), None, "auto", None)
    hub.breaks_after.clear()
    fetch(Config(), GENERAL, "auto", None)
    assert hub.requests[-1] == ("GET", ON_HUB, "bytes=1000-")
    assert model_file(AUTO) == siblings[0].path


def test_a_named_source_is_the_only_one(hub: PackageIndex, packages_at_once: None) -> None:
    fetch(Config(), None, "packages", None)
    assert hub.requests == []
    assert chat_model_name(AUTO) == PACKAGED
    model_file(AUTO).unlink()
    hub.files.clear()
    with pytest.raises(ModelError, match="HTTP 404"):
        fetch(Config(), None, "hub", None)
    assert not model_file_here()


def model_file_here() -> bool:
    return any(CHAT_MODELS[name].path.exists() for name in (GENERAL, PACKAGED))


@pytest.mark.parametrize("name", [GENERAL, PACKAGED])
def test_a_file_of_either_is_copied_and_either_is_kept(
    hub: PackageIndex, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    content = GENERAL_CONTENT if name == GENERAL else CONTENT
    (file := tmp_path / "from.gguf").write_bytes(content)
    fetch(Config(), None, "auto", file)
    capsys.readouterr()
    fetch(Config(), None, "auto", None)
    assert capsys.readouterr().err.startswith(f"{name} is here already: ")
    assert model_file(AUTO).read_bytes() == content
    assert [listed.name for listed in list_models(Config()) if listed.needed] == [name]
    assert hub.requests == []


@pytest.mark.parametrize(
    ("brain", "engine", "needed"),
    [
        (BrainConfig(name="voxtral"), "kokoro", ["voxtral", "kokoro"]),
        (BrainConfig(name="remote", language="de"), "none", []),
        (BrainConfig(name="embedded", language="de"), "auto", [PACKAGED, "whisper-base"]),
    ],
)
@pytest.mark.usefixtures("hub")
def test_what_is_needed_follows_the_brain_and_the_voice(
    brain: BrainConfig, engine: Literal["auto", "kokoro", "none"], needed: list[str]
) -> None:
    config = Config(brain=brain, voice=VoiceConfig(engine=engine))
    assert [listed.name for listed in list_models(config) if listed.needed] == needed


def test_voxtral_and_the_english_kokoro_are_fetched_where_the_settings_name_no_other(
    hub: PackageIndex,
) -> None:
    with pytest.raises(InputError, match="voxtral can be downloaded from the hub only"):
        fetch(Config(brain=BrainConfig(name="voxtral")), None, "packages", None)
    with pytest.raises(ModelError, match=r"hexgrad/Kokoro"):
        fetch(Config(brain=BrainConfig(language="de")), "kokoro", "auto", None)
    assert any("Kokoro" in path for path in hub.paths("/"))


@pytest.mark.usefixtures("packages_at_once")
def test_a_damaged_general_model_makes_room_for_the_other(
    hub: PackageIndex, siblings: tuple[Model, Model]
) -> None:
    siblings[0].path.parent.mkdir(parents=True)
    siblings[0].path.write_bytes(bytes(len(GENERAL_CONTENT)))
    with pytest.raises(ModelError, match=r"Checksum mismatch.*Run `voxtui models fetch`\."):
        model_file(AUTO)
    hub.files.clear()
    fetch(Config(), None, "auto", None)
    assert model_file(AUTO) == siblings[1].path


def test_a_config_that_names_a_model_keeps_it(hub: PackageIndex) -> None:
    hub.files["/someone/tiny/resolve/main/tiny.gguf"] = CONTENT
    named = Config(brain=BrainConfig(embedded=EmbeddedBrainConfig(model=PACKAGED)))
    fetch(named, None, "auto", None)
    assert model_file(PACKAGED).read_bytes() == CONTENT
    assert hub.paths("/someone/general") == []


def test_the_screen_fetches_the_same_and_says_which(hub: PackageIndex) -> None:
    said: list[str] = []
    steps: list[str] = []
    brain = EmbeddedBrain(
        Config(), True, said.append, recogniser=ScriptedRecogniser(), chat=ScriptedChat()
    )
    assert PACKAGED in brain.description
    brain.warm_up(lambda step, fraction: steps.append(step))
    brain.close()
    assert steps[0] == f"fetching {GENERAL}"
    assert GENERAL in brain.description.split()[1]
    assert [sentence.startswith("The hub answers") for sentence in said] == [True]


def test_only_a_fetch_asks_the_hub(hub: PackageIndex) -> None:
    download(CHAT_MODELS[GENERAL], "hub")
    asked = len(hub.requests)
    brain = EmbeddedBrain(Config(), recogniser=ScriptedRecogniser(), chat=ScriptedChat())
    brain.warm_up(lambda step, fraction: None)
    brain.close()
    assert list(list_models(Config()))
    assert len(hub.requests) == asked
