"""Kokoro by the official code, with random weights, on the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

if not find_spec("kokoro"):
    pytest.skip("Kokoro needs Python < 3.13", allow_module_level=True)

import torch
from hibari.g2p import G2P

from tests.voices.random_kokoro import make
from voxtui.errors import ModelError, UnspokenLanguage
from voxtui.models.installed import KokoroFiles, kokoro_files
from voxtui.settings.schema import KokoroConfig, VoiceConfig
from voxtui.voices import kokoro, kokoro_torch
from voxtui.voices.hibari import pause_after, trim
from voxtui.voices.kokoro import LONGEST, KokoroVoice

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2]
SPEAK = """
import sys
from pathlib import Path
from voxtui.settings.schema import VoiceConfig
from voxtui.models.installed import KokoroFiles
from voxtui.voices.kokoro import KokoroVoice
voice = KokoroVoice(VoiceConfig(), KokoroFiles(*map(Path, sys.argv[1:])))
voice.warm_up(lambda step, fraction: None)
assert list(voice.speak("Dr. Smith paid $3.50."))
foreign = {"misaki", "spacy", "phonemizer", "espeakng_loader", "kokoro.pipeline"}
assert not foreign & set(sys.modules), foreign & set(sys.modules)
import kokoro.model
from loguru import logger
assert [str(h) for h in logger._core.handlers.values()] == ["(id=0, level=10, sink=<stderr>)"]
"""


def quiet(step, fraction):
    pass


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return make(tmp_path_factory.mktemp("kokoro"))


@pytest.fixture(scope="module")
def voice(files):
    voice = KokoroVoice(VoiceConfig(), files)
    voice.warm_up(quiet)
    yield voice
    voice.close()


def test_no_other_part_of_the_package_is_loaded_and_nothing_is_printed(files):
    paths = [str(path) for path in (files.model, files.config, files.voice)]
    ran = subprocess.run(
        [sys.executable, "-c", SPEAK, *paths],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_nothing_is_downloaded(files, monkeypatch):
    def refuse(*_):
        raise AssertionError("a connection")

    monkeypatch.setattr("socket.socket.connect", refuse)
    with closing(KokoroVoice(VoiceConfig(), files)) as voice:
        voice.warm_up(quiet)
        assert list(voice.speak("Good morning."))


def test_it_sounds_as_the_official_code_does(voice, files):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        official = kokoro_torch.model_code().KModel(
            repo_id="random", config=str(files.config), model=str(files.model)
        )
    official.eval()
    pack = torch.load(files.voice, weights_only=True)
    clause = "Hello there."
    phonemes = G2P()(clause)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        expected = official(phonemes, pack[len(phonemes) - 1], 1.0).clamp(-1, 1).numpy()
    (chunk,) = voice.speak(clause)
    expected = trim(expected, kokoro.RATE, pause_after(clause))
    np.testing.assert_allclose(chunk.samples, expected, atol=1e-5)


def test_speaking_leaves_the_default_random_generator_alone(voice):
    with torch.random.fork_rng():
        torch.manual_seed(7)
        alone = torch.rand(4)
        torch.manual_seed(7)
        list(voice.speak("Good morning."))
        assert torch.equal(torch.rand(4), alone)


def test_the_first_piece_of_a_long_clause_does_not_wait_for_the_rest(voice, monkeypatch):
    pieces = []
    model = kokoro_torch.model_code().KModel
    forward = model.forward_with_tokens

    def noting(self, ids, *args):
        names = {number: phoneme for phoneme, number in self.vocab.items()}
        pieces.append([names[number] for number in ids[0, 1:-1].tolist()])
        return forward(self, ids, *args)

    monkeypatch.setattr(model, "forward_with_tokens", noting)
    monkeypatch.setattr(kokoro, "LONGEST", 60)
    clause = "The quick brown fox, it jumps over the lazy dog and the fence; " * 2
    chunks = voice.speak(clause)
    first = next(chunks)
    assert (len(pieces), first.text) == (1, clause)
    rest = list(chunks)
    assert rest and {chunk.text for chunk in rest} == {""}
    assert all(0 < len(piece) <= 60 for piece in pieces)
    assert all(piece[-1] in ",;" for piece in pieces)


@pytest.mark.parametrize("phonemes", ["", "  ", "a" * 1000, "ab " * 400, "ab, " * 400, "a. " * 399])
def test_no_phoneme_is_lost_in_cutting(phonemes):
    pieces = list(kokoro.cut_phonemes(phonemes))
    assert "".join(pieces).replace(" ", "") == phonemes.replace(" ", "")
    assert all(0 < len(piece) <= LONGEST for piece in pieces)


def test_a_faster_voice_is_shorter(files, voice):
    clause = "The capital of France is Paris."
    with closing(KokoroVoice(VoiceConfig(speed=1.5), files)) as fast:
        fast.warm_up(quiet)
        lengths = [len(next(v.speak(clause)).samples) for v in (voice, fast)]
    assert lengths[1] < 0.85 * lengths[0]


def test_a_british_voice_speaks_british(files, voice):
    with closing(KokoroVoice(VoiceConfig(name="bf_emma"), files)) as british:
        british.warm_up(quiet)
        assert "bf_emma" in british.name
        chunks = [next(speaker.speak("Go home.")) for speaker in (british, voice)]
        assert chunks[0].samples.tobytes() != chunks[1].samples.tobytes()


@pytest.mark.parametrize("name", ["emma", "jf_alpha", "../af_heart"])
def test_a_voice_of_another_language_is_refused(files, name):
    with pytest.raises(ModelError, match="it has no such voice for English"):
        KokoroVoice(VoiceConfig(name=name), files)


def damage(files, tmp_path, **content):
    damaged = tmp_path / "damaged"
    damaged.write_bytes(*content.values())
    return replace(files, **dict.fromkeys(content, damaged))


@pytest.mark.parametrize(
    "content",
    [
        {"model": b""},
        {"model": b"no checkpoint"},
        {"config": b"{"},
        {"config": json.dumps({"vocab": {}}).encode()},
        {"voice": b"PK"},
    ],
    ids=str,
)
def test_a_damaged_file_is_refused_with_the_command_that_replaces_it(files, tmp_path, content):
    voice = KokoroVoice(VoiceConfig(), damage(files, tmp_path, **content))
    with pytest.raises(ModelError, match=r"cannot be loaded.*`voxtui models fetch kokoro`"):
        voice.warm_up(quiet)


@pytest.mark.parametrize("content", [b"{}", b"[]", b"[1]"])
def test_an_empty_configuration_is_refused_instead_of_downloaded(files, tmp_path, content):
    voice = KokoroVoice(VoiceConfig(), damage(files, tmp_path, config=content))
    with pytest.raises(ModelError, match="is not the configuration of Kokoro"):
        voice.warm_up(quiet)


def test_a_checkpoint_of_something_else_is_refused(files, tmp_path):
    torch.save({"weights": {}}, tmp_path / "other.pth")
    voice = KokoroVoice(VoiceConfig(), replace(files, model=tmp_path / "other.pth"))
    with pytest.raises(ModelError, match="cannot be loaded"):
        voice.warm_up(quiet)


def test_a_voice_pack_of_another_shape_is_refused(files, tmp_path):
    torch.save(torch.zeros(510, 1, 128), tmp_path / "other.pt")
    voice = KokoroVoice(VoiceConfig(), replace(files, voice=tmp_path / "other.pt"))
    with pytest.raises(ModelError, match="is not a voice of Kokoro"):
        voice.warm_up(quiet)


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory."), ImportError("libcudart is not there.")]
)
def test_a_device_with_too_little_memory_is_one_sentence(files, monkeypatch, error):
    def full(model, device):
        raise error

    monkeypatch.setattr(torch.nn.Module, "to", full)
    with pytest.raises(ModelError, match=f"Kokoro did not load: {error}"):
        KokoroVoice(VoiceConfig(), files).warm_up(quiet)


def test_samples_that_are_not_numbers_fail_as_one_sentence(files, tmp_path):
    torch.save(torch.full((510, 1, 256), torch.nan), tmp_path / "nan.pt")
    voice = KokoroVoice(VoiceConfig(), replace(files, voice=tmp_path / "nan.pt"))
    with pytest.raises(ModelError, match=r"Kokoro could not say 'Ready\.'"):
        voice.warm_up(quiet)


@pytest.mark.parametrize("package", kokoro.NEEDED)
def test_a_missing_package_is_named_with_the_extra(monkeypatch, package):
    monkeypatch.setattr(
        kokoro.importlib.util,
        "find_spec",
        lambda name: None if name == package else find_spec(name),
    )
    with pytest.raises(ModelError, match=rf"not installed \({package}\).*'\.\[kokoro\]'"):
        kokoro.check_installed()


def test_an_unsupported_python_is_named(monkeypatch):
    monkeypatch.setattr(kokoro.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(kokoro.sys, "version_info", (3, 13))
    with pytest.raises(ModelError, match=r"up to Python 3\.12 only"):
        kokoro.check_installed()


# Other languages.


@pytest.fixture
def french(files, tmp_path, monkeypatch):
    """Kokoro with a French voice of its own, and FakeEspeakNg, which reads everything as `a`."""
    place = tmp_path / "voxtui" / "models" / "Kokoro-82M"
    (place / "voices").mkdir(parents=True)
    for source, name in ((files.model, "kokoro-v1_0.pth"), (files.config, "config.json")):
        (place / name).symlink_to(source)
    torch.save(torch.load(files.voice) * 2, place / "voices" / "ff_siwis.pt")
    program = tmp_path / "espeak-ng"
    program.write_text("#!/bin/sh\ncat >/dev/null; echo aaaaaaaaaaaa\n")
    program.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with closing(KokoroVoice(VoiceConfig(), files)) as voice:
        voice.warm_up(quiet)
        yield voice


def test_each_language_has_its_own_voice_and_phonemes(french):
    (one,), (two,) = (list(french.speak("Oui.", language="fr")) for _ in range(2))
    (english,) = french.speak("Oui.")
    np.testing.assert_array_equal(one.samples, two.samples)
    assert one.text == "Oui." and len(one.samples) != len(english.samples)


def test_what_a_language_lacks_is_the_reason_for_silence(french, monkeypatch):
    with pytest.raises(UnspokenLanguage, match=r"Kokoro has no German voice\."):
        list(french.speak("Ja.", language="de"))
    with pytest.raises(UnspokenLanguage, match=r"cannot speak Italian.*fetch kokoro --language it"):
        list(french.speak("Sì.", language="it"))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UnspokenLanguage, match=r"cannot speak French.*espeak-ng is not installed"):
        list(french.speak("Oui.", language="fr"))


# Where its files are.


def test_paths_of_the_configuration_come_first(files, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config = VoiceConfig(
        kokoro=KokoroConfig(
            model=str(files.model), config=str(files.config), voice=str(files.voice)
        )
    )
    assert kokoro_files(config) == files


def test_downloaded_files_are_used_where_no_path_is_configured(files, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config = VoiceConfig(kokoro=KokoroConfig(model=str(files.model)))
    with pytest.raises(ModelError, match=r"config\.json of hexgrad/Kokoro-82M is not on this mach"):
        kokoro_files(config)
    place = tmp_path / "voxtui" / "models" / "Kokoro-82M"
    (place / "voices").mkdir(parents=True)
    for name in ("config.json", "voices/af_heart.pt"):
        (place / name).touch()
    expected = KokoroFiles(files.model, place / "config.json", place / "voices" / "af_heart.pt")
    assert kokoro_files(config) == expected


def test_a_configured_file_that_is_missing_is_named():
    with pytest.raises(ModelError, match=r"no file /no/such\.pth"):
        kokoro_files(VoiceConfig(kokoro=KokoroConfig(model="/no/such.pth")))
