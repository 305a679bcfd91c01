"""Style, types, import direction and pinned versions are clean."""

import ast
import re
import subprocess
import sysconfig
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent
LOCKS = ("requirements.lock", "requirements-extras.lock", "requirements-test.lock")
SCRIPTS = Path(sysconfig.get_path("scripts"))


def complaints(*command):
    ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    return ran.stdout + ran.stderr if ran.returncode else ""


@pytest.mark.parametrize("command", [("format", "--check", "."), ("check", ".")])
def test_the_style_is_clean(command):
    assert complaints(SCRIPTS / "ruff", *command) == ""


@pytest.mark.slow
def test_the_types_are_clean():
    assert complaints(SCRIPTS / "pyright") == ""


def test_the_import_contracts_hold():
    assert complaints(SCRIPTS / "lint-imports", "--no-logo", "--no-cache") == ""


def test_every_thread_has_a_name_that_the_leak_check_knows():
    """The engine, too, ends the program for exceptions of such threads only."""
    unnamed = []
    for path in (REPOSITORY / "voxtui").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "Thread":
                names = [word.value for word in node.keywords if word.arg == "name"]
                known = names and (
                    isinstance(names[0], ast.Name) or "voxtui-" in ast.unparse(names[0])
                )
                if not known:
                    unnamed.append(f"{path.name}:{node.lineno}")
    assert unnamed == []


def test_fast_tests_with_real_sound_are_in_one_folder():
    """`make test` looks for them there only."""
    elsewhere = []
    for path in (REPOSITORY / "tests").rglob("test_*.py"):
        for node in ast.parse(path.read_text()).body:
            marks = [ast.unparse(mark) for mark in getattr(node, "decorator_list", [])]
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
                marks = [ast.unparse(node.value)]
            marked = " ".join(marks)
            if "mark.audio" in marked and "mark.slow" not in marked and path.parent.name != "audio":
                elsewhere.append(f"{path.name}:{node.lineno}")
    assert elsewhere == []


def test_the_locks_pin_every_dependency_and_name_no_index():
    locked = "".join((REPOSITORY / name).read_text() for name in LOCKS if "extras" not in name)
    names = set(re.findall(r"^([\w.-]+)==", locked, re.MULTILINE))
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    requirements = [
        *project["project"]["dependencies"],
        *project["project"]["optional-dependencies"]["embedded"],
        *project["project"]["optional-dependencies"]["remote"],
        *project["dependency-groups"]["build"],
        *(one for one in project["dependency-groups"]["test"] if isinstance(one, str)),
        *project["dependency-groups"]["lint"],
    ]
    assert {_name(requirement) for requirement in requirements} - names == {"torch"}
    assert "\nTORCH := torch==2.13.0\n" in (REPOSITORY / "Makefile").read_text()
    assert "torch==2.13.0" in project["dependency-groups"]["test"]
    assert not any("://" in (REPOSITORY / name).read_text() for name in LOCKS)


def test_the_lock_of_the_extras_has_each_of_them():
    lock = (REPOSITORY / "requirements-extras.lock").read_text()
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    sections = dict(re.findall(r"^# \[(.*)\]\n((?:[^#].*\n)*)", lock, re.MULTILINE))
    base = (REPOSITORY / "requirements.lock").read_text()
    needs = project["project"]["optional-dependencies"]
    needs["lint"] = project["dependency-groups"]["lint"]
    assert {*sections, "embedded"} == needs.keys()
    for name, section in sections.items():
        locked = base * (name != "lint") + section
        names = set(re.findall(r"^([\w.-]+)==", locked, re.MULTILINE))
        assert {_name(one) for one in needs[name]} <= names


def _name(requirement: str) -> str:
    name = requirement.strip()
    for separator in "[<>=!~ ;":
        name = name.split(separator)[0]
    return name.lower()
