"""Whisper: its features and its tokens, against transformers; its weights where they are here."""

import dataclasses
import hashlib

import numpy as np
import pytest

from tests.models.tiny_model import CONTENT
from voxtui.brains.embedded import whisper as module
from voxtui.brains.embedded.recogniser import Heard, Moonshine
from voxtui.brains.embedded.whisper import (
    Whisper,
    begins_twice,
    choose,
    is_here,
    log_mel,
    text_of,
)
from voxtui.errors import ModelError
from voxtui.models.catalogue import WHISPER, ModelFile
from voxtui.models.installed import released_path
from voxtui.settings.schema import BrainConfig, Config
from voxtui.wiring import recogniser


def test_the_features_are_those_of_the_maker():
    from transformers import WhisperFeatureExtractor

    sound = np.random.default_rng(1).normal(0, 0.1, 50_000).astype(np.float32)
    expected = WhisperFeatureExtractor()(sound, sampling_rate=16_000, return_tensors="np")
    features = log_mel(sound)
    assert features.shape == (80, 600)  # its maker gives it 30 seconds
    # The last frame is half beyond the end.
    assert np.allclose(features[:, :-1], expected["input_features"][0][:, :599], atol=2e-4)
    assert log_mel(np.zeros(16_000 * 40, np.float32)).shape == (80, 3000)


def test_tokens_are_bytes_of_utf_8():
    assert text_of(["<|es|>", "ĠMa", "Ã±", "ana", "Ġ", "Â¿", "quÃ©", "?", "<|endoftext|>"]) == (
        "Mañana ¿qué?"
    )


def test_english_is_moonshines_and_another_language_whispers(monkeypatch, tmp_path):
    assert isinstance(choose(BrainConfig()), Moonshine)
    assert isinstance(choose(BrainConfig(language="en")), Moonshine)
    monkeypatch.setattr(module, "released_path", lambda model: tmp_path)
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="is Spanish") as refused:
        choose(BrainConfig(language="es"))
    assert "whisper" in str(refused.value) and not is_here()
    monkeypatch.setattr(module, "find_spec", lambda name: True)
    assert isinstance(choose(BrainConfig(language="es")), Whisper) and is_here()


def test_without_the_model_the_way_to_it_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "find_spec", lambda name: True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ModelError, match="voxtui models fetch whisper-base"):
        choose(BrainConfig(language="es"))
    assert not is_here()


def test_a_file_that_is_not_the_released_one_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    digest = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
    model = dataclasses.replace(WHISPER, files=(ModelFile("a/b", "f.bin", len(CONTENT), digest),))
    model.directory.mkdir(parents=True)
    (model.directory / "f.bin").write_bytes(CONTENT)
    assert released_path(model) == model.path
    (model.directory / "f.bin").write_bytes(CONTENT[:-1] + b"x")
    with pytest.raises(ModelError, match="is damaged"):
        released_path(model)


class FakeRuntime:
    """FakeCtranslate2: hears what it is made with."""

    def __init__(self, languages, no_speech=0.0, score=-0.1):
        self.languages, self.no_speech, self.score = languages, no_speech, score
        self.texts, self.windows = ["ĠHola ."], []
        self.models = self
        self.StorageView = self

    def Whisper(self, folder, **options):  # noqa: N802
        return self

    def from_array(self, features):
        self.windows.append(features.shape[2])
        return features

    def encode(self, features):
        return features

    def detect_language(self, encoded):
        return [self.languages]

    def generate(self, encoded, prompts, **options):
        self.prompt = prompts[0]
        result = type("Result", (), {})()
        text = self.texts.pop(0) if self.texts[1:] else self.texts[0]
        result.sequences, result.scores = [text.split(" ")], [self.score]
        result.no_speech_prob = self.no_speech
        return [result]


@pytest.mark.parametrize(
    ("languages", "used"),
    [
        ([("<|es|>", 0.9), ("<|en|>", 0.1)], "<|es|>"),
        ([("<|es|>", 0.4), ("<|en|>", 0.3)], "<|en|>"),  # not sure enough
        ([("<|cy|>", 0.9), ("<|fr|>", 0.05), ("<|en|>", 0.04)], "<|en|>"),  # one nobody chose
    ],
)
def test_the_language_is_found_out(monkeypatch, tmp_path, languages, used):
    runtime = FakeRuntime(languages)
    monkeypatch.setattr(module, "import_module", lambda name: runtime)
    whisper = Whisper(tmp_path, "")
    whisper.load()
    assert whisper.recognise(np.zeros(16_000, np.float32)) == Heard("Hola.")
    assert runtime.prompt[1] == used


def test_a_short_window_is_given_up_where_the_words_begin_anew(monkeypatch, tmp_path):
    runtime = FakeRuntime([])
    runtime.texts = [" ".join(["ĠPulse", "Ġla", "Ġtecla"] * 2), "ĠPulse Ġla Ġtecla"]
    monkeypatch.setattr(module, "import_module", lambda name: runtime)
    whisper = Whisper(tmp_path, "es")
    whisper.load()
    assert whisper.recognise(np.zeros(16_000, np.float32)).text == "Pulse la tecla"
    assert runtime.windows == [600, 3000]
    assert not begins_twice("No no, no no, gracias") and not begins_twice("Sí, claro que sí, claro")


def test_words_invented_for_silence_are_dropped(monkeypatch, tmp_path):
    runtime = FakeRuntime([], no_speech=0.9, score=-1.5)
    monkeypatch.setattr(module, "import_module", lambda name: runtime)
    whisper = Whisper(tmp_path, "es")
    whisper.load()
    assert whisper.recognise(np.zeros(16_000, np.float32)).text == ""
    assert runtime.prompt[1] == "<|es|>"


class Quick:
    def __init__(self, choice):
        pass

    def load(self): ...

    def close(self): ...


@pytest.mark.parametrize(
    ("fails", "seconds", "text", "has_draft"),
    [
        ("", 11, "Careful words.", True),
        ("", 9, "Quick words.", True),
        ("quick", 9, "Careful words.", True),  # in another language
        ("recognise", 11, "Quick words.", True),
        ("load", 11, "Quick words.", False),
    ],
)
def test_words_that_whisper_fails_on_are_those_that_were_shown(
    monkeypatch, tmp_path, fails, seconds, text, has_draft
):
    class Careful(Whisper):
        """FakeWhisper: fails where the test says."""

        def load(self):
            if fails == "load":
                raise ModelError("Whisper did not load.")

        def recognise(self, samples, cancelled=None, name=""):
            if fails == "recognise":
                raise ModelError("Whisper failed.")
            return Heard("Careful words.")

    class Moonshine(Quick):
        """FakeMoonshine: knows no word of another language."""

        def recognise(self, samples, cancelled=None, name=""):
            return Heard("Quick words.", tokens=4, log_probability=-9.0 if fails == "quick" else 0)

    monkeypatch.setattr(module, "Moonshine", Moonshine)
    monkeypatch.setattr(module, "Whisper", Careful)
    monkeypatch.setattr(module, "is_here", lambda: True)
    monkeypatch.setattr("voxtui.models.installed.released_path", lambda model: tmp_path)
    notices = []
    with recogniser(Config(brain=BrainConfig(name="embedded")), notices.append, True) as to_text:
        assert to_text.recognise(np.zeros(16_000 * seconds, np.float32)) == text
        assert bool(to_text.draft) == has_draft
    assert bool(notices) == (fails == "load")
