"""Every command, option, key and link of the README and of docs/ exists."""

import importlib.util
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from voxtui.cli import cli
from voxtui.settings.schema import Config

REPOSITORY = Path(__file__).parent.parent
README = (REPOSITORY / "README.md").read_text()
MANUAL = [README, *(page.read_text() for page in REPOSITORY.glob("docs/*.md"))]


def typed(page=README, program=""):
    """Return the commands of `page` that begin with `program`, in code blocks and in quotes."""
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    lines = [line.removeprefix(".venv/bin/") for block in blocks for line in block.splitlines()]
    lines = [line for line in lines if line.strip() and line.startswith(program)]
    quoted = re.findall(rf"`({program or '(?:voxtui|make|python -m)'} [^`]+)`", page)
    first = [re.split(" (?:&&|[|]) ", line)[0] for line in [*lines, *quoted]]
    commands = [shlex.split(line, comments=True) for line in first]
    return [[word for word in words if not re.match(r"[A-Z_]+=", word)] for words in commands]


def commands_of(program):
    commands = [words for page in MANUAL for words in typed(page, program) if words[0] == program]
    return [list(words) for words in dict.fromkeys(map(tuple, commands))]


def subcommand(words):
    """Return the words before the first option or argument."""
    names = []
    for word in words[1:]:
        if not re.fullmatch(r"[a-z]+", word):
            break
        names.append(word)
    return tuple(names)


@pytest.fixture(scope="module")
def helped():
    """Return the text of `--help` of a subcommand."""

    def run(names):
        ran = CliRunner().invoke(cli, [*names, "--help"])
        assert ran.exit_code == 0, f"voxtui {' '.join(names)}: {ran.stderr}"
        return ran.stdout

    return run


@pytest.mark.parametrize("words", commands_of("voxtui"), ids=shlex.join)
def test_every_voxtui_command_and_option_exists(words, helped):
    text = helped(subcommand(words))
    for option in (word.split("=")[0] for word in words if word.startswith("--")):
        assert option in text


@pytest.mark.parametrize("words", sorted(set(map(tuple, commands_of("make")))), ids=shlex.join)
def test_every_make_target_exists(words):
    subprocess.run(["make", "-n", *words[1:]], cwd=REPOSITORY, check=True, capture_output=True)


def test_every_value_that_is_set_is_a_key_of_the_config():
    commands = commands_of("voxtui")
    keys = [re.match(r"[a-z_.]+", word)[0] for words in commands for word in words if "=" in word
            and words[words.index(word) - 1] == "--set"]  # fmt: skip
    keys += re.findall(r"`([a-z]+(?:\.[a-z_]+)+) = ", "".join(MANUAL))
    keys += [key.lower().replace("__", ".") for key in re.findall(r"VOXTUI_(\w+__\w+)=", README)]
    assert len(keys) >= 20
    for key in keys:
        config = Config()
        for name in key.split("."):
            config = getattr(config, name)


def test_every_extra_that_is_installed_exists():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = {
        extra
        for words in typed()
        for word in words
        for extras in re.findall(r"^\.\[(.*)\]$", word)
        for extra in extras.split(",")
    }
    assert extras
    assert extras <= set(project["optional-dependencies"])


def headings(page):
    """Return the anchors of the page's headings."""
    lines = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in lines}


PAGES = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_file_and_heading_that_is_linked_is_there(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, heading = link.partition("#")
        target = page.parent / path if path else page
        if "://" not in link:
            assert target.exists(), link
            assert not heading or heading in headings(target), link


def test_every_page_is_linked_by_another():
    links = [
        page.parent / link.partition("#")[0]
        for page in PAGES
        for link in re.findall(r"\]\(([^)#][^)\s]*)\)", page.read_text())
    ]
    assert set(PAGES) - {link.resolve() for link in links} == set()


def test_the_readme_uses_only_programs_that_the_reader_has():
    installed = {"git", "make", "pip", "pipx", "python", "uv", "voxtui"}
    assert {words[0] for words in typed()} <= {"sudo", *installed}
    assert shutil.which("make")


def test_every_python_module_that_a_page_runs_exists():
    pages = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md")]
    modules = {
        name
        for page in pages
        for name in re.findall(r"python -m ([a-z_]+(?:\.[a-z_]+)*)", page.read_text())
    }
    assert {name for name in modules if name.startswith("benchmarks.")}
    assert {name for name in modules if importlib.util.find_spec(name) is None} == set()
