"""Downloads of Voxtral and Kokoro by the command, from a hub on real sockets."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from tests.deadline import SECONDS
from tests.package_index import PackageIndex
from voxtui.brains.voxtral.brain import VoxtralBrain
from voxtui.cli import cli
from voxtui.errors import ModelError, VoxtuiError
from voxtui.models import cuda
from voxtui.models import download as download_module
from voxtui.models.catalogue import Model, models_directory, voxtral
from voxtui.models.download import download
from voxtui.models.installed import voxtral_directory
from voxtui.settings.schema import BrainConfig, Config, VoxtralBrainConfig
from voxtui.settings.sources import with_value
from voxtui.wiring import VOXTRAL, build_brain

VOXTUI = Path(sys.executable).with_name("voxtui")
NAME = "someone/Tiny-Voxtral"
COMMIT = "c0ffee" * 6 + "c0ff"
SHARD_ONE, SHARD_TWO = (f"model-0000{n}-of-00002.safetensors" for n in (1, 2))


def safetensors(size, seed):
    """Return a file of that format with one tensor of random bytes."""
    header = json.dumps({"t": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return len(header).to_bytes(8, "little") + header + random.Random(seed).randbytes(size)


FILES = {
    "config.json": b'{"model_type": "voxtral"}',
    "tekken.json": b'{"vocab": []}' + b" " * 3000,
    "preprocessor_config.json": b"{}",
    "model.safetensors.index.json": json.dumps(
        {"weight_map": {"a": SHARD_ONE, "b": SHARD_TWO}}
    ).encode(),
    SHARD_ONE: safetensors(300_000, 1),
    SHARD_TWO: safetensors(200_000, 2),
}
USELESS = {
    "consolidated.safetensors": b"the same once more",
    "README.md": b"# Tiny",
    "params.json": b"",
}
API = f"/api/models/{NAME}/revision/main?blobs=true"


def at(file):
    return f"/{NAME}/resolve/{COMMIT}/{file}"


def sibling(path, content):
    git = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    entry = {"rfilename": path, "size": len(content), "blobId": git}
    if path.endswith("safetensors") or path == "tekken.json":
        sha256 = hashlib.sha256(content).hexdigest()
        entry["lfs"] = {"sha256": sha256, "size": len(content), "pointerSize": 135}
        entry["blobId"] = "0" * 40
    return entry


@pytest.fixture
def hub():
    """Serve a hub that redirects for the shards, as the real one does for large files."""
    with PackageIndex() as hub:
        everything = FILES | USELESS
        siblings = [sibling(path, content) for path, content in everything.items()]
        hub.files[API] = json.dumps({"id": NAME, "sha": COMMIT, "siblings": siblings}).encode()
        for path, content in everything.items():
            if path.startswith("model-"):
                hub.moved[at(path)] = f"/elsewhere/{path}"
                hub.files[f"/elsewhere/{path}"] = content
            else:
                hub.files[at(path)] = content
        yield hub


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Make the machine one without models, and return the path of the model to download."""
    for name in os.environ:
        if name.startswith(("HF_", "VOXTUI_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache" / "voxtui" / "models" / "someone" / "Tiny-Voxtral"


@pytest.fixture
def fetch(machine, hub, monkeypatch):
    """Run `voxtui models fetch voxtral` and return its exit code and output."""
    monkeypatch.setenv("HF_ENDPOINT", hub.url)

    def run(*arguments, model=NAME):
        command = ["models", "fetch", "voxtral", "--set", f"brain.voxtral.model={model}"]
        return voxtui(*command, *arguments)

    return run


def voxtui(*arguments):
    """Run the command in this process, because the start of another takes a second."""
    ran = CliRunner().invoke(cli, arguments)
    stderr = ran.stderr
    if isinstance(ran.exception, VoxtuiError):
        stderr += f"{ran.exception}\n"
    elif ran.exception and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    return SimpleNamespace(returncode=ran.exit_code, stdout=ran.stdout, stderr=stderr)


def refusal(ran):
    """Return the error message of a command that failed."""
    assert (ran.returncode, ran.stdout) == (1, ""), ran.stderr
    return ran.stderr.splitlines()[-1]


def fetched(directory):
    """Return the files of the model; their check records stand beside them."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.suffix != ".checked"
    }


def test_only_files_of_the_format_we_read_are_downloaded(fetch, hub, machine):
    ran = fetch()
    assert ran.returncode == 0, ran.stderr
    assert fetched(machine) == FILES
    assert ran.stderr.startswith(f"Fetching voxtral: 0.00 GB to {machine}\n")
    assert voxtral_directory(NAME) == machine
    listed = voxtui("models", "list", "--set", f"brain.voxtral.model={NAME}").stdout
    (line,) = [line for line in listed.splitlines() if line.startswith("voxtral ")]
    assert line.endswith(f"here: {machine}")


def test_a_complete_model_makes_no_request(fetch, hub, machine):
    fetch()
    hub.requests.clear()
    ran = fetch()
    assert ran.stderr == f"voxtral is here already: {machine}\n"
    assert hub.requests == []


def test_a_broken_download_resumes_at_the_same_byte(fetch, hub, machine):
    elsewhere = f"/elsewhere/{SHARD_ONE}"
    hub.breaks_after[elsewhere] = 123_456
    assert refusal(fetch()) == (
        f"The connection to the hub broke during the download of {SHARD_ONE}. "
        "Run the command again: the download resumes where it stopped."
    )
    hub.breaks_after.clear()
    hub.requests.clear()
    assert fetch().returncode == 0
    assert ("GET", elsewhere, "bytes=123456-") in hub.requests
    assert hub.paths("/elsewhere") == [elsewhere]
    assert fetched(machine) == FILES


def test_after_a_kill_the_download_resumes_at_the_same_file(fetch, hub, machine):
    hub.holds[f"/elsewhere/{SHARD_ONE}"] = threading.Event()
    command = [VOXTUI, "models", "fetch", "voxtral", "--set", f"brain.voxtral.model={NAME}"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as fetching:
        assert hub.asked.acquire(timeout=SECONDS)
        fetching.send_signal(signal.SIGKILL)
    hub.holds.popitem()[1].set()
    hub.requests.clear()
    assert fetch().returncode == 0
    assert hub.paths("/elsewhere") == [f"/elsewhere/{SHARD_ONE}"]
    assert fetched(machine) == FILES


@pytest.mark.parametrize("file", [SHARD_TWO, "config.json"])
def test_a_file_with_another_checksum_is_named_and_deleted(fetch, hub, machine, file):
    path = f"/elsewhere/{file}" if file == SHARD_TWO else at(file)
    hub.files[path] = hub.files[path][:-1] + b"?"
    assert refusal(fetch()) == (f"Checksum mismatch for {file}. It was deleted. Try again.")
    assert not [name for name in fetched(machine) if name.startswith(file)]


def test_a_gated_repository_says_where_to_accept_its_terms(fetch, hub):
    hub.refuses[at("config.json")] = (401, "GatedRepo")
    assert refusal(fetch()) == (
        f"{NAME} is gated: the hub requires that you accept its terms (HTTP 401). "
        f"Accept them at https://huggingface.co/{NAME}, "
        "then run the same command with HF_TOKEN set."
    )


def test_the_users_token_goes_to_the_hub_and_nowhere_else(fetch, hub, monkeypatch, machine):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert fetch().returncode == 0
    paths = {path for path, _ in hub.tokens}
    assert {token for _, token in hub.tokens} == {"Bearer hf_secret"}
    assert {API, at("config.json"), at(SHARD_ONE)} <= paths
    assert not [path for path in paths if path.startswith("/elsewhere")]


def test_the_token_of_the_hubs_own_login_is_found(fetch, hub, tmp_path):
    login = tmp_path / "cache" / "huggingface"
    login.mkdir(parents=True)
    (login / "token").write_text("hf_login\n")
    assert fetch().returncode == 0
    assert {token for _, token in hub.tokens} == {"Bearer hf_login"}


def test_a_missing_repository_is_an_error_with_the_status(fetch, hub):
    hub.refuses["/api/models/no/such/revision/main?blobs=true"] = (401, "RepoNotFound")
    message = refusal(fetch(model="no/such"))
    assert message.startswith("The hub has no no/such, or it is private (HTTP 401).")


def test_a_failing_hub_is_an_error_with_the_status(fetch, hub):
    hub.refuses[API] = (503, "")
    assert refusal(fetch()).startswith(f"The hub refuses to send {NAME} (HTTP 503, ")
    del hub.refuses[API]
    hub.files[API] = b"<html>"
    assert refusal(fetch()) == f"Invalid response from the hub about {NAME}."


@pytest.mark.parametrize("path", ["/tmp/model.safetensors", "model/../../../model.safetensors"])
def test_a_listing_with_paths_outside_of_the_directory_is_invalid(fetch, hub, path):
    siblings = [sibling(path, b"")]
    hub.files[API] = json.dumps({"sha": COMMIT, "siblings": siblings}).encode()
    assert refusal(fetch()) == f"Invalid response from the hub about {NAME}."


def test_endless_redirects_are_an_error_with_the_status(fetch, hub):
    hub.moved[API] = API
    message = refusal(fetch())
    assert message.startswith(f"The hub refuses to send {NAME} (HTTP 302, ")


def test_a_repository_of_another_format_is_refused(fetch, hub):
    siblings = [sibling(path, content) for path, content in USELESS.items()]
    siblings += [sibling(path, FILES[path]) for path in ("config.json", "tekken.json")]
    hub.files[API] = json.dumps({"sha": COMMIT, "siblings": siblings}).encode()
    assert refusal(fetch()) == f"{NAME} on the hub has no model*.safetensors."


def test_an_unreachable_hub_is_one_sentence(fetch, hub, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    message = refusal(fetch())
    assert message.startswith("The hub cannot be reached: ") and "refused" in message
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert refusal(fetch()).startswith("HF_HUB_OFFLINE forbids requests to the hub.")


def test_missing_disk_space_is_found_before_any_file_is_requested(fetch, hub):
    answer = json.loads(hub.files[API])
    for entry in answer["siblings"]:
        if entry["rfilename"] == SHARD_ONE:
            entry["lfs"]["size"] = 1 << 60
    hub.files[API] = json.dumps(answer).encode()
    assert refusal(fetch()).startswith("Not enough space in ")
    assert hub.paths(f"/{NAME}") == []


def test_a_directory_of_the_user_needs_no_download(fetch, machine, tmp_path):
    fetch()
    machine.rename(tmp_path / "mine")
    ran = fetch(model="./mine")
    assert (ran.returncode, ran.stderr) == (0, "mine is your own directory; nothing to fetch.\n")


def test_voxtral_comes_from_the_hub_only(fetch):
    assert refusal(fetch("--source", "packages")).startswith(
        "voxtral can be downloaded from the hub only."
    )
    assert refusal(fetch("--from", "x")).startswith("voxtral can be downloaded from the hub only.")


KOKORO = "/hexgrad/Kokoro-82M"


def test_kokoro_comes_with_the_voice_that_is_configured(machine, hub, monkeypatch):
    files = {"config.json": b"{}", "kokoro-v1_0.pth": b"P" * 5000, "voices/bf_emma.pt": b"V" * 50}
    french = {"voices/ff_siwis.pt": b"F" * 50}
    others = {"voices/af_heart.pt": b"H" * 50, "samples/HEARME.wav": b"W"} | french
    siblings = [sibling(path, content) for path, content in (files | others).items()]
    answer = json.dumps({"sha": COMMIT, "siblings": siblings}).encode()
    hub.files[f"/api/models{KOKORO}/revision/main?blobs=true"] = answer
    hub.files |= {
        f"{KOKORO}/resolve/{COMMIT}/{path}": content for path, content in (files | french).items()
    }
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    command = ("models", "fetch", "kokoro", "--set", "voice.name=bf_emma")
    ran = [voxtui(*command) for _ in range(2)]
    directory = machine.parents[1] / "Kokoro-82M"
    assert fetched(directory) == files
    assert ran[1].stderr == f"kokoro is here already: {directory}\n"
    assert voxtui(*command, "--language", "fr").returncode == 0
    assert fetched(directory) == files | french
    assert "no voice for German" in refusal(voxtui(*command, "--language", "de"))


def test_a_voice_that_kokoro_lacks_is_named(machine, hub, monkeypatch):
    siblings = [sibling(path, b"") for path in ("config.json", "kokoro-v1_0.pth")]
    answer = json.dumps({"sha": COMMIT, "siblings": siblings}).encode()
    hub.files[f"/api/models{KOKORO}/revision/main?blobs=true"] = answer
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    ran = voxtui("models", "fetch", "kokoro", "--set", "voice.name=af_nobody")
    assert refusal(ran) == "hexgrad/Kokoro-82M on the hub has no voices/af_nobody.pt."


# Voxtral as it loads, named in the config.

NAMED = Config(brain=BrainConfig(name="voxtral", voxtral=VoxtralBrainConfig(model=NAME)))


def test_the_screen_downloads_a_voxtral_that_the_config_names(machine, hub, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    brain = build_brain(NAMED, lambda sentence: None, frozenset({VOXTRAL})).make()
    seen = []
    # These are not weights, so that is how it ends.
    with pytest.raises(ModelError, match="cannot be loaded"):
        brain.warm_up(lambda step, fraction: seen.append((step, fraction)))
    for name, content in FILES.items():
        assert (machine / name).read_bytes() == content
    assert [*dict.fromkeys(step for step, _ in seen)] == ["fetching Tiny-Voxtral", "Voxtral"]


def test_the_screen_shows_that_the_hub_lacks_it(machine, hub, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    hub.files.clear()
    brain = build_brain(NAMED, lambda sentence: None, frozenset({VOXTRAL})).make()
    with pytest.raises(ModelError, match=f"The hub has no {NAME}|refuses to send {NAME}"):
        brain.warm_up(lambda step, fraction: None)


def test_leaving_during_the_download_does_not_wait_for_it(machine, monkeypatch):
    class Leaving(Exception):
        pass

    def leave(step, fraction):
        raise Leaving

    never, blocks = threading.Event(), iter(range(1000))

    def endless(model, source, progress):
        for done in blocks:
            never.wait(0.01)
            progress(done, 1000)

    monkeypatch.setattr(download_module, "download", endless)
    brain = VoxtralBrain(NAMED, machine, fetches=voxtral(NAME))
    with pytest.raises(Leaving):
        brain.warm_up(leave)
    assert next(blocks, None) is not None


@pytest.mark.parametrize(
    ("name", "may_download"), [("auto", frozenset({VOXTRAL})), ("voxtral", frozenset())]
)
def test_nothing_is_downloaded_without_consent(machine, hub, monkeypatch, name, may_download):
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setattr(cuda, "check_voxtral", lambda: None)
    config = with_value(NAMED, "brain.name", name)
    with pytest.raises(ModelError, match="not on this machine yet"):
        build_brain(config, lambda sentence: None, may_download).makers[0]()
    assert not hub.requests


# The files that a directory must hold.


@pytest.fixture
def mine(tmp_path):
    directory = tmp_path / "mine"
    directory.mkdir()
    for name, content in FILES.items():
        (directory / name).write_bytes(content)
    return directory


def test_progress_counts_bytes_of_all_files_and_never_decreases(machine, hub, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    seen = []
    download(voxtral(NAME), progress=lambda *amounts: seen.append(amounts))
    total = sum(map(len, FILES.values()))
    assert {size for _, size in seen} == {total}
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == total


def test_a_directory_of_the_user_is_used_directly(mine, machine):
    assert voxtral(str(mine)) == mine
    assert voxtral_directory(str(mine)) == mine


def test_the_cache_of_the_hubs_own_client_is_used(machine, tmp_path, mine):
    repository = tmp_path / "cache/huggingface/hub/models--someone--Tiny-Voxtral"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    (repository / "snapshots").mkdir()
    mine.rename(repository / "snapshots" / COMMIT)
    assert voxtral_directory(NAME) == repository / "snapshots" / COMMIT


def test_for_a_missing_model_the_error_names_the_command(machine):
    with pytest.raises(
        ModelError, match=r"not on this machine yet.*models fetch voxtral` \(9.4 GB"
    ):
        voxtral_directory(NAME)


@pytest.mark.parametrize("file", ["config.json", "tekken.json", SHARD_TWO])
def test_a_missing_file_is_named(mine, file):
    (mine / file).unlink()
    with pytest.raises(ModelError, match=f"incomplete: {file} is missing"):
        voxtral_directory(str(mine))


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff" * 100, FILES[SHARD_ONE][:-1], FILES[SHARD_ONE] + b"?"],
    ids=["empty", "no header", "cut short", "too long"],
)
def test_a_file_of_the_wrong_length_is_damaged(mine, content):
    (mine / SHARD_ONE).write_bytes(content)
    with pytest.raises(ModelError, match=f"{SHARD_ONE} is damaged or cut short"):
        voxtral_directory(str(mine))


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"weight_map": 3}'])
def test_a_damaged_index_is_an_error(mine, content):
    (mine / "model.safetensors.index.json").write_bytes(content)
    with pytest.raises(ModelError, match=r"index\.json is damaged"):
        voxtral_directory(str(mine))


def test_one_file_of_weights_needs_no_index(mine):
    for name in (SHARD_ONE, SHARD_TWO, "model.safetensors.index.json"):
        (mine / name).unlink()
    with pytest.raises(ModelError, match=r"model\.safetensors is missing"):
        voxtral_directory(str(mine))
    (mine / "model.safetensors").write_bytes(FILES[SHARD_ONE])
    assert voxtral_directory(str(mine)) == mine


@pytest.mark.parametrize("path", ["/no/such", "~/no/such", "./no", "nothing"])
def test_a_name_that_is_not_a_repository_is_a_path(path, machine):
    with pytest.raises(ModelError, match=r"There is no directory .*no"):
        voxtral_directory(path)


@pytest.mark.parametrize("name", ["a/..", "a/.", "../b", "a/.git", "a/b/c"])
def test_a_model_name_outside_of_the_models_directory_is_refused(name, machine):
    assert isinstance(voxtral(name), Path)
    with pytest.raises(ModelError, match="There is no directory"):
        voxtral_directory(name)


def change(path):
    """Write other bytes of the same length, at a later time."""
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"?")
    later = path.stat().st_mtime_ns + 1_000_000_000
    os.utime(path, ns=(later, later))


def test_a_file_of_voxtral_that_changed_is_not_loaded_but_downloaded_again(fetch, hub, machine):
    fetch()
    change(machine / SHARD_TWO)
    with pytest.raises(ModelError, match=rf"{SHARD_TWO} changed after .* models fetch voxtral`"):
        voxtral_directory(NAME)
    hub.requests.clear()
    ran = fetch()
    assert ran.stderr.startswith(f"Checksum mismatch for {machine / SHARD_TWO}.\nFetching voxtral")
    assert hub.paths("/elsewhere") == [f"/elsewhere/{SHARD_TWO}"]
    assert fetched(machine) == FILES
    assert voxtral_directory(NAME) == machine


def test_copied_files_of_voxtral_are_hashed_again_by_fetch_without_the_hub(fetch, hub, machine):
    fetch()
    for path in machine.iterdir():
        os.utime(path, ns=(1, 1))
    with pytest.raises(ModelError, match="changed after its checksum was checked"):
        voxtral_directory(NAME)
    hub.requests.clear()
    assert fetch().stderr == f"voxtral is here already: {machine}\n"
    assert hub.requests == []
    assert voxtral_directory(NAME) == machine


def test_a_file_that_an_earlier_download_left_unchecked_is_hashed_not_sent(fetch, hub, machine):
    machine.mkdir(parents=True)
    (machine / SHARD_ONE).write_bytes(FILES[SHARD_ONE])
    (machine / SHARD_TWO).write_bytes(bytes(len(FILES[SHARD_TWO])))
    assert fetch().returncode == 0
    assert hub.paths("/elsewhere") == [f"/elsewhere/{SHARD_TWO}"]
    assert fetched(machine) == FILES


def test_a_downloaded_model_is_kept_under_its_name(machine):
    repository = voxtral(NAME)
    assert isinstance(repository, Model)
    assert repository.path == models_directory() / NAME == machine
