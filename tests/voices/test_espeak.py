"""Phonemes by espeak-ng, on a stand-in that does as a test tells it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from voxtui.errors import ModelError
from voxtui.voices import espeak
from voxtui.voices.espeak import Espeak

FakeProgram = Callable[[str], None]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeProgram:
    """Return what makes FakeEspeakNg, a shell script in the place of espeak-ng."""

    def make(script: str) -> None:
        path = tmp_path / "espeak-ng"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return make


def phonemes(text: str, language: str = "fr") -> str:
    with closing(Espeak(language)) as read:
        return read(text)


def test_punctuation_stays_where_it_is_and_is_not_read(program: FakeProgram) -> None:
    program("cat")  # reads each line as it is written
    assert phonemes("Bonjour, ça va ? « Oui » — 3,14.") == "Bonjour, ça va? “Oui” — 3,14."
    assert phonemes("¿Qué tal? ¡Bien!", "es") == "¿Qué tal? ¡Bien!"
    assert phonemes("[[x]] a\nb") == "x a b"
    assert phonemes("…") == ""


def test_a_piece_that_is_read_in_two_lines_keeps_its_signs(program: FakeProgram) -> None:
    program("sed 's/Mr Dupont/Mr\\nDupont/'")
    assert phonemes("Mr Dupont, non!") == "Mr Dupont, non!"


def test_pieces_that_cannot_be_told_apart_keep_their_last_sign(program: FakeProgram) -> None:
    program("sed 's/^un$/\\n/'")
    assert phonemes("un, deux, trois.") == "deux trois."


def test_the_signs_become_those_of_kokoro(program: FakeProgram) -> None:
    program("cat >/dev/null; echo 't^ʃˈa^ʊ la- (en)nˈe^ɪm(it) ɐ̃^ʊ̃'")
    assert phonemes("ciao", "it") == "ʧˈW la nˈAm ɐ̃ʊ̃"


def test_the_process_gets_the_language_and_no_secret(
    program: FakeProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOXTUI_API_KEY", "secret")
    program('cat >/dev/null; echo "$* $VOXTUI_API_KEY"')
    assert phonemes("olá", "pt").split() == ["q", "b", "1", "ipa=3", "tie=", "v", "ptbr"]


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("exit 3", r"failed \(exit status 3\)"),
        ("exec sleep 60", "took more than"),
    ],
)
def test_a_program_that_fails_is_one_sentence(
    program: FakeProgram, monkeypatch: pytest.MonkeyPatch, script: str, problem: str
) -> None:
    program(script)
    monkeypatch.setattr(espeak, "TIMEOUT_SECONDS", 0.05)
    with pytest.raises(ModelError, match=f"espeak-ng {problem}"):
        phonemes("bonjour")


def test_a_program_that_is_not_there_is_named_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ModelError, match="espeak-ng is not installed") as caught:
        Espeak("fr")
    assert "apt install espeak-ng" in caught.value.hint


@pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="needs espeak-ng")
@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("fr", "Bonjour, ça va ?", "bɔ̃ʒˈuʁ, sa vˈa?"),
        ("es", "¿Qué tal?", "¿kˈe tˈal?"),
        ("it", "Ciao!", "ʧˈao!"),
    ],
)
def test_the_program_itself(language: str, text: str, expected: str) -> None:
    assert phonemes(text, language) == expected
