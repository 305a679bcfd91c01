"""The wheel, and the Makefile that installs it."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import wave
import zipfile
from importlib.resources import files
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent
CLIPS = REPOSITORY / "assets" / "clips"

OUTSIDE_MAKE = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
"""The environment without the variables by which `make test` would change a second make."""


def run(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options)


def build(kind, source, destination):
    """Build a `wheel` or an `sdist` of the tree at `source`, and return its path."""
    run(sys.executable, "-m", "hatchling", "build", "--target", kind, "-d", destination, cwd=source)
    (built,) = Path(destination).iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build("wheel", REPOSITORY, tmp_path_factory.mktemp("wheel"))


def test_an_installed_voxtui_has_its_clips_and_its_config(wheel, tmp_path):
    environment = os.environ | {"PIP_USER": "0", "PYTHONWARNINGS": "default"}
    install = (sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index")
    install += ("--no-compile",)
    run(*install, "--target", tmp_path, wheel, env=environment)
    data = tmp_path / "voxtui" / "data"
    assert not any(path.is_symlink() for path in [data, *data.rglob("*")])
    assert (data / "config.toml").read_bytes() == (REPOSITORY / "config.toml").read_bytes()
    assert {path.name: path.read_bytes() for path in (data / "clips").iterdir()} == {
        path.name: path.read_bytes() for path in CLIPS.iterdir()
    }
    version = run(sys.executable, "-c", "import voxtui; print(voxtui.__version__)", cwd=tmp_path)
    assert wheel.name.startswith(f"voxtui-{version.stdout.strip()}-")


def test_a_voxtui_in_a_clone_has_its_clips_and_its_config():
    data = files("voxtui") / "data"
    assert (data / "config.toml").read_text() == (REPOSITORY / "config.toml").read_text()
    assert {path.name for path in (data / "clips").iterdir()} == {p.name for p in CLIPS.iterdir()}


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"voxtui"}
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    page = {path.name for path in (REPOSITORY / "voxtui/serve/page").iterdir() if path.is_file()}
    assert page == {name.split("/")[-1] for name in names if name.startswith("voxtui/serve/page/")}
    assert not any("__pycache__" in name for name in names)


@pytest.mark.slow
def test_a_wheel_built_from_the_source_archive_is_the_same(wheel, tmp_path):
    archive = build("sdist", REPOSITORY, tmp_path / "sdist")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "source")  # our own archive
    (source,) = (tmp_path / "source").iterdir()
    again = build("wheel", source, tmp_path / "wheel")
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(again) as other:
        assert sorted(one.namelist()) == sorted(other.namelist())


def test_the_clips_are_small_and_in_the_format_of_the_microphone():
    clips = sorted(CLIPS.glob("*.wav"))
    assert len(clips) >= 4
    assert sum(path.stat().st_size for path in CLIPS.iterdir()) <= 1 << 20
    for clip in clips:
        with wave.open(str(clip)) as sound:
            assert (sound.getframerate(), sound.getnchannels(), sound.getsampwidth()) == (
                16_000,
                1,
                2,
            )


@pytest.mark.parametrize(
    ("python", "sentence"),
    [
        ("", "voxtui needs Python 3.11 or newer."),
        ("#!/bin/sh\nexit 1\n", "Python's venv module is missing."),
    ],
)
def test_an_unsuitable_python_is_one_sentence(tmp_path, python, sentence):
    stub = tmp_path / "python"
    stub.write_text(python)
    stub.chmod(0o755)
    command = ["make", "setup", f"VENV={tmp_path / 'venv'}", f"PYTHON={stub if python else ''}"]
    ran = subprocess.run(
        command, cwd=REPOSITORY, env=OUTSIDE_MAKE, capture_output=True, text=True, check=False
    )
    assert ran.returncode
    assert ran.stdout.startswith(sentence)
    assert len(ran.stdout.splitlines()) == 1


@pytest.fixture
def machine(tmp_path):
    """Fake a machine whose Python, apt-get, id and sudo log their calls."""
    return FakeMachine(tmp_path)


class FakeMachine:
    def __init__(self, directory):
        self._log = directory / "log"
        self._bin = directory / "bin"
        self.path = f"{self._bin}{os.pathsep}{os.environ['PATH']}"
        self._venv = directory / "venv"
        self.venv_bin = self._venv / "bin"
        self.install("apt-get", 'echo "apt-get $*" >> "$LOG"')
        self.install("dpkg-query", "exit 1")
        self.install("id", "echo 1000")
        self.install("sudo", "exit 1")
        self.install("python", "exit 1", self.venv_bin)

    def install(self, name, script, directory=None):
        path = (directory or self._bin) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def make(self, target):
        """Return the output of `make TARGET`, and the calls of apt-get."""
        environment = {"LOG": str(self._log), "PATH": self.path}
        command = ("make", "--no-print-directory", target, f"VENV={self._venv}")
        ran = run(*command, cwd=REPOSITORY, env=OUTSIDE_MAKE | environment)
        calls = self._log.read_text().splitlines() if self._log.exists() else []
        return ran.stdout, calls


INSTALLS = [
    "apt-get update",
    "apt-get install --yes --no-install-recommends --no-remove libportaudio2 libgomp1",
]


def test_root_gets_the_system_packages_of_a_run_installed(machine):
    machine.install("id", "echo 0")
    output, calls = machine.make("run-packages")
    assert calls == INSTALLS
    assert output == "Installing system packages: libportaudio2 libgomp1\n"


def test_a_user_with_passwordless_sudo_gets_them_installed_without_a_question(machine):
    machine.install("sudo", 'test "$1" = -n || exit 1; shift; echo "sudo" >> "$LOG"; "$@"')
    _, calls = machine.make("run-packages")
    assert calls == ["sudo", "sudo", INSTALLS[0], "sudo", INSTALLS[1]]


def test_a_user_without_sudo_gets_the_command(machine):
    output, calls = machine.make("run-packages")
    assert calls == []
    assert output.endswith("Run: sudo apt install libportaudio2 libgomp1\n")
    assert len(output.splitlines()) == 1


def test_packages_that_cannot_be_installed_do_not_stop_the_run(machine):
    machine.install("id", "echo 0")
    machine.install("apt-get", 'test "$1" = update')
    output, _ = machine.make("run-packages")
    assert "apt-get did not install them." in output
    assert output.endswith("Run: sudo apt install libportaudio2 libgomp1\n")


def test_a_machine_that_has_the_libraries_installs_nothing(machine):
    machine.install("id", "echo 0")
    machine.install("python", "exit 0", machine.venv_bin)
    assert machine.make("run-packages") == ("", [])


def test_the_tests_get_the_packages_of_a_run_and_a_sound_server(machine):
    machine.install("id", "echo 0")
    _, calls = machine.make("test-packages")
    assert calls[1].startswith(f"{INSTALLS[1]} ") and "pulseaudio" in calls[1]


@pytest.fixture(scope="module")
def steps():
    """Return the commands of `make run test` with an extra in a fresh clone."""
    command = ("make", "--dry-run", "--always-make", "run", "test", "EXTRAS=serve")
    return run(*command, cwd=REPOSITORY, env=OUTSIDE_MAKE).stdout


def test_run_installs_the_system_packages_before_it_starts(steps):
    assert steps.index("libportaudio2 libgomp1") < steps.index("voxtui models fetch")


def test_set_up_installs_only_what_has_the_locked_hash(steps):
    """Every package of the lock has hashes, and pip gets the option that demands them.

    An isolated build would download its backend without a hash.
    """
    for lock in ("requirements.lock", "requirements-test.lock", "requirements-extras.lock"):
        blocks = re.split(r"\n(?=\S)", (REPOSITORY / lock).read_text())
        packages = [block for block in blocks if not block.startswith("#")]
        assert all("==" in block and "--hash=sha256:" in block for block in packages)
    installs = [line for line in steps.splitlines() if "--requirement " in line]
    assert len(installs) == 3 and all("--require-hashes" in line for line in installs)
    (install,) = [line for line in steps.splitlines() if "--editable" in line]
    assert "--no-deps" in install and "--no-build-isolation" in install


@pytest.mark.slow
def test_a_package_with_another_hash_is_not_installed(tmp_path):
    lock = (REPOSITORY / "requirements.lock").read_text()
    click = next(line for line in lock.splitlines() if line.startswith("click=="))
    (tmp_path / "lock").write_text(f"{click}\n    --hash=sha256:{'0' * 64}\n")
    command = (
        sys.executable,
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--no-deps",
        "--ignore-installed",
    )
    arguments = ("--require-hashes", "--requirement", tmp_path / "lock")
    ran = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert ran.returncode
    assert "DO NOT MATCH THE HASHES" in ran.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_setup_installs_voxtui_and_then_has_nothing_to_do(tmp_path):
    make = ("make", "setup", f"VENV={tmp_path / 'venv'}")
    run(*make, cwd=REPOSITORY, env=OUTSIDE_MAKE | {"PIP_COMPILE": "0"})
    assert "voxtui" in run(tmp_path / "venv" / "bin" / "voxtui", "--version").stdout
    assert (
        subprocess.run(
            [*make, "--question"], cwd=REPOSITORY, env=OUTSIDE_MAKE, check=False
        ).returncode
        == 0
    )
    newer = [*make, "--question", "--what-if=requirements.lock"]
    assert subprocess.run(newer, cwd=REPOSITORY, env=OUTSIDE_MAKE, check=False).returncode == 1


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_extra_leaves_the_clone_in_place_and_so_does_a_copy_at_the_next_set_up(tmp_path):
    """Otherwise `make run` would start old code after `git pull`."""
    make = ("make", "setup", f"VENV={tmp_path / 'venv'}")
    python = tmp_path / "venv" / "bin" / "python"
    environment = OUTSIDE_MAKE | {"PIP_COMPILE": "0"}
    where = (python, "-I", "-c", "import voxtui, starlette; print(voxtui.__file__)")

    def installed():
        return Path(run(*where, cwd=tmp_path).stdout.strip()).parent

    run(*make, "EXTRAS=serve", cwd=REPOSITORY, env=environment)
    assert installed() == REPOSITORY / "voxtui"
    nothing = subprocess.run([*make, "--question"], cwd=REPOSITORY, env=environment, check=False)
    assert nothing.returncode == 0
    run(python, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", REPOSITORY)
    assert installed() != REPOSITORY / "voxtui"
    run(*make, cwd=REPOSITORY, env=environment)
    assert installed() == REPOSITORY / "voxtui"


def beside_these_packages(venv):
    """Make an environment that finds the packages of this one, so that pip downloads nothing."""
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "these.pth").write_text(sysconfig.get_path("purelib"))


@pytest.mark.slow
def test_make_run_starts_the_new_code_after_git_pull(tmp_path, machine):
    theirs, clone = tmp_path / "theirs", tmp_path / "clone"
    theirs.mkdir()
    for name in ("Makefile", "README.md", "LICENSE", "config.toml", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, theirs)
    for lock in REPOSITORY.glob("requirements*.lock"):
        shutil.copy(lock, theirs)
    for folder in ("assets", "voxtui"):
        without = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / folder, theirs / folder, symlinks=True, ignore=without)

    def git(*arguments, cwd=theirs):
        run("git", "-c", "user.name=A", "-c", "user.email=a@b.c", *arguments, cwd=cwd)

    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message=Begin")
    git("clone", "--quiet", theirs, clone, cwd=tmp_path)
    beside_these_packages(clone / ".venv")
    environment = OUTSIDE_MAKE | {"PIP_NO_INDEX": "1", "PATH": machine.path}
    run("make", "setup", "EXTRAS=serve webrtc", cwd=clone, env=environment)

    entry = "def main():\n    print('new', __file__)\n"
    (theirs / "voxtui" / "__main__.py").write_text(entry)
    git("commit", "--quiet", "--all", "--message=Change")
    git("pull", "--quiet", cwd=clone)
    ran = run("make", "run", cwd=clone, env=environment)
    new = f"new {clone / 'voxtui' / '__main__.py'}"
    assert ran.stdout.splitlines() == [new, new]  # `voxtui models fetch`, and `voxtui`


def test_an_unknown_extra_is_one_sentence(tmp_path):
    (tmp_path / ".installed").touch()
    make = ("make", f"{tmp_path}/.extra-webserver", f"VENV={tmp_path}")
    ran = subprocess.run(
        [*make, f"--old-file={tmp_path}/.installed"],
        cwd=REPOSITORY, env=OUTSIDE_MAKE, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode
    assert ran.stdout.startswith("voxtui has no extra webserver. The extras are: remote, serve, ")


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.timeout(600)
def test_an_environment_made_by_uv_installs_voxtui_and_downloads_a_model(wheel, tmp_path):
    uv = Path(sys.executable).with_name("uv")
    python = tmp_path / "venv" / "bin" / "python"
    environment = os.environ | {
        "PATH": f"{uv.parent}{os.pathsep}{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "UV_CACHE_DIR": str(tmp_path / "uv"),
    }
    run(uv, "venv", "--python", sys.executable, tmp_path / "venv", env=environment)
    run(uv, "pip", "install", "--python", python, wheel, env=environment)
    assert subprocess.run([python, "-m", "pip"], capture_output=True, check=False).returncode
    voxtui = python.with_name("voxtui")
    run(voxtui, "models", "fetch", "smollm2-135m", env=environment, cwd=tmp_path)
    (fetched,) = (tmp_path / "cache" / "voxtui" / "models").glob("*.gguf")
    assert fetched.stat().st_size == 98_362_432
