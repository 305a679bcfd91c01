import threading
from pathlib import Path

import numpy as np
import pytest
from textual.widgets._toast import Toast

from tests.fakes import (
    DEVICES,
    SECONDS,
    BeepVoice,
    FakeMicrophone,
    FakeSoundSystem,
    FakeSpeaker,
    ListedDevice,
    ScriptedBrain,
    make_factories,
)
from tests.ui.conftest import Screen, screen, until
from tests.ui.test_with_engine import live
from voxtui.dialogue.engine_commands import ReplaceComponents
from voxtui.dialogue.events import (
    Loaded,
    LoadFailed,
    Loading,
    MicrophoneOpened,
    State,
    StateChanged,
)
from voxtui.dialogue.timestamps import Outcome
from voxtui.errors import DeviceError, ModelError, ModelMissing
from voxtui.models.catalogue import CHAT_MODELS, HIBARI_VOICES, SMALL_KOKORO, WHISPER
from voxtui.settings.schema import (
    BrainConfig,
    Config,
    RemoteBrainConfig,
    UiConfig,
    VadConfig,
    VoiceConfig,
    VoxtralBrainConfig,
)
from voxtui.settings.sources import load_config
from voxtui.ui.menu.menu import part_choices
from voxtui.ui.menu.palette import Entry, Palette
from voxtui.ui.themes import AUTO, DARK


class Reload:
    """Makes brain and voice after a start that failed."""

    def __init__(self) -> None:
        self.made: list[bool] = []
        """for each time, whether a chat model may be downloaded"""
        self.fails: ModelError | None = None

    def __call__(self, config, notify, may_download) -> ReplaceComponents:
        if self.fails:
            raise self.fails
        self.made.append(may_download)
        return ReplaceComponents(config, brain=ScriptedBrain(), voice=BeepVoice())


async def entries(s: Screen) -> list[Entry]:
    return [*await s.app.menu.devices(), *s.app.commands(), *s.app.menu.entries()]


async def titles(s: Screen) -> list[str]:
    """Return the lines of the palette with their sections."""
    return [f"{e.section}: {e.title}{' ✓' if e.chosen else ''}" for e in await entries(s)]


async def opened(s: Screen, query: str) -> None:
    """Open the palette and search it."""
    await s.pilot.press("ctrl+p")
    await s.type(query)


@pytest.fixture(autouse=True)
def own_config(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "config" / "voxtui" / "config.toml"


async def test_every_choice_is_in_the_palette_and_marked_if_in_force():
    async with screen(factories=make_factories()) as s:
        found = await titles(s)
        for title in (
            "Microphone: the system's default ✓", "Microphone: USB Microphone",
            "Speaker: the system's default ✓", "Speaker: Headphones",
            "Model: The best for this machine ✓", "Model: Qwen2.5-Coder 1.5B, on this machine",
            "Voice: None, text only", "Voice: Speed 1 ✓", "Voice: Speed 1.5",
            "Model: Very short answers", "Model: Answers of usual length ✓",
            "Look: Theme voxtui-light", "Look: Theme by the terminal ✓", "Look: Theme nord",
            "Microphone: Look for devices again", "Microphone: Hands-free",
            "Settings: Save settings", "Conversation: New conversation",
            "Conversation: Keep conversations",
        ):  # fmt: skip
            assert title in found
        assert "Speaker: USB Microphone" not in found


@pytest.mark.slow
async def test_a_configured_server_is_in_the_palette_as_the_receiver_of_the_voice():
    async with screen(factories=make_factories()) as s:
        assert "Model: A server" not in await titles(s)
    there = RemoteBrainConfig(url="https://far.example:8000/v1")
    async with screen(
        config=Config(brain=BrainConfig(remote=there)), factories=make_factories()
    ) as s:
        assert "Model: A server" in await titles(s)
        abouts = [entry.about for entry in await entries(s)]
        assert "your voice and words go to far.example:8000" in abouts


@pytest.mark.slow
async def test_the_palette_shows_the_download_size_of_voxtral(tmp_path, monkeypatch):
    for cache in ("XDG_CACHE_HOME", "HF_HOME"):
        monkeypatch.setenv(cache, str(tmp_path))
    own = BrainConfig(voxtral=VoxtralBrainConfig(model=str(tmp_path)))
    for brain, about in ((BrainConfig(), "fetches 9.4 GB"), (own, "")):
        async with screen(config=Config(brain=brain), factories=make_factories()) as s:
            (voxtral,) = [e for e in await entries(s) if e.title.startswith("Voxtral")]
            assert (voxtral.about, bool(voxtral.question)) == (about, bool(about))


@pytest.mark.slow
async def test_a_large_download_begins_only_after_a_yes(tmp_path, monkeypatch):
    for cache in ("XDG_CACHE_HOME", "HF_HOME"):
        monkeypatch.setenv(cache, str(tmp_path))
    async with screen(size=(100, 30), factories=make_factories()) as s:
        for answer in (["enter"], ["down", "enter"]):
            await opened(s, "voxtral")
            await s.pilot.press("enter")
            await until(s, lambda: "Fetch 9.4 GB now?" in s.text)
            assert s.commands == []
            await s.pilot.press(*answer)
            await s.settle()
        assert s.commands == ["change"]
        assert s.engine.calls[-1][1].brain


@pytest.mark.slow
async def test_a_theme_is_previewed_and_left_with_escape(monkeypatch):
    monkeypatch.setattr("voxtui.ui.menu.palette.PREVIEW_SECONDS", 0.001)
    async with screen(size=(100, 30)) as s:
        await opened(s, "theme nord")
        await until(s, lambda: s.app.theme == "nord")
        await s.pilot.press("escape")
        await until(s, lambda: s.app.theme == DARK)
        assert s.app.session.config.ui.theme == AUTO


async def test_only_devices_that_a_person_would_choose_are_offered():
    listed = [*DEVICES, ListedDevice("surround40", 2, 2), ListedDevice("Monitor of HDMI", 2, 0)]
    async with screen(factories=make_factories(devices=lambda: listed)) as s:
        found = " ".join(await titles(s))
        assert "USB Microphone" in found and "Headphones" in found
        assert "surround40" not in found and "Monitor" not in found


async def test_the_default_has_the_name_of_the_device_behind_it(monkeypatch):
    behind = {"input": "Blue Yeti", "output": "default"}  # the sound server knows no speaker
    monkeypatch.setattr("voxtui.audio.portaudio.shown_name", lambda device, way: behind[way])
    listed = [*DEVICES, ListedDevice("default", 2, 2)]
    async with screen((100, 30), factories=make_factories(devices=lambda: listed)) as s:
        await opened(s, "system")
        assert "the system's default  Blue Yeti" in s.text
        assert "default  default" not in s.text


@pytest.mark.slow
async def test_hands_free_is_chosen_without_loading_a_part():
    async with screen(size=(100, 30), factories=make_factories()) as s:
        await opened(s, "hands")
        await s.pilot.press("enter")
        await s.settle()
        ((_, change),) = [call for call in s.engine.calls if call[0] == "change"]
        assert change == ReplaceComponents(change.config) and change.config.vad.hands_free
        s.engine.load(changed=True)
        await s.settle()
        assert "Speak, or type" in s.text
        assert "Microphone: Hands-free ✓" in await titles(s)


@pytest.mark.slow
async def test_hands_free_opens_the_microphone_again_where_that_removes_the_echo():
    removing = make_factories(cancels_echo=lambda config: config.vad.hands_free)
    async with screen(size=(100, 30), factories=removing) as s:
        await opened(s, "hands")
        await s.pilot.press("enter")
        await s.settle()
        ((_, change),) = [call for call in s.engine.calls if call[0] == "change"]
        assert change.config.vad.hands_free and change.microphone is not None


async def test_the_palette_opens_and_chooses_by_key():
    async with screen(size=(100, 30)) as s:
        await opened(s, "textual light")
        await until(s, lambda: "Theme textual-light" in s.text)
        await s.pilot.press("enter")
        await until(s, lambda: s.app.session.config.ui.theme == "textual-light")
        assert s.app.theme == "textual-light"


async def test_without_a_search_each_setting_is_one_line_with_its_value_and_opens_its_choices():
    async with screen(size=(100, 40), factories=make_factories()) as s:
        await s.press("ctrl+p")
        await s.app.workers.wait_for_complete()
        await s.settle()
        assert s.line("New conversation").rstrip("│ ").endswith("^n")
        await s.pilot.press("up", "up", "up")  # past the first line, from the last one
        await s.settle()
        assert "Theme                     by the terminal" in s.text and "nord" not in s.text
        await s.press("enter")
        assert "Theme nord" in s.text and "Save settings" not in s.text
        assert "✓ Theme by the terminal" in s.text  # and it is highlighted
        await s.press("down", "enter")
        assert s.app.session.config.ui.theme == DARK


async def test_a_search_without_a_result_says_so():
    async with screen() as s:
        await s.press("ctrl+p")
        await s.type("zebra")
        assert "No match" in s.text
        await s.press("enter")
        assert "No match" in s.text and s.commands == []


def test_the_chat_models_that_are_here_are_offered_if_there_is_a_choice(monkeypatch, tmp_path):
    monkeypatch.setattr("voxtui.models.catalogue.models_directory", lambda: tmp_path)

    def offered(config: Config) -> list[str]:
        return [c.value for c in part_choices(config) if c.key == "brain.embedded.model"]

    CHAT_MODELS["qwen2.5-coder-1.5b"].path.touch()
    assert offered(Config()) == []
    CHAT_MODELS["qwen3-1.7b"].path.touch()
    assert offered(Config()) == ["qwen2.5-coder-1.5b", "qwen3-1.7b"]
    assert offered(Config(brain=BrainConfig(name="voxtral"))) == []


def test_the_embedded_voices_are_offered_with_what_they_fetch(monkeypatch, tmp_path):
    monkeypatch.setattr("voxtui.models.catalogue.models_directory", lambda: tmp_path)
    emma = HIBARI_VOICES["bf_emma"]

    def offered(config: Config = Config()) -> dict[str, Entry]:  # noqa: B008
        return {c.value: c for c in part_choices(config) if c.key == "voice.name"}

    assert [*offered()] == ["af_heart", *HIBARI_VOICES]
    assert offered()["bf_emma"].question == "Fetch 8 MB from a hub now?"
    emma.path.parent.mkdir()
    emma.path.touch()
    assert offered()["bf_emma"].question == ""
    assert offered(Config(voice=VoiceConfig(engine="kokoro"))) == {}


def test_languages_are_offered_where_whisper_is_here_with_what_they_cost(monkeypatch, tmp_path):
    monkeypatch.setattr("voxtui.models.catalogue.models_directory", lambda: tmp_path)
    monkeypatch.setattr("voxtui.ui.menu.menu.find_spec", lambda name: True)

    def offered(config: Config = Config()) -> dict[str, str]:  # noqa: B008
        return {c.value: c.about for c in part_choices(config) if c.key == "brain.language"}

    assert offered() == {}
    WHISPER.path.mkdir()
    assert offered()["es"] == "heard by Whisper, seconds later; text only"
    SMALL_KOKORO.path.mkdir()
    assert offered()["es"] == "heard by Whisper, seconds later"
    assert offered()["de"] == "heard by Whisper, seconds later; text only"
    assert offered()["en"] == ""
    assert offered(Config(brain=BrainConfig(name="voxtral"))) == {}


async def test_another_language_replaces_the_brain_and_the_voice():
    async with screen(factories=make_factories()) as s:
        s.app.menu.choose(Entry("", "", key="brain.language", value="es"))
        ((_, change),) = [call for call in s.engine.calls if call[0] == "change"]
        assert change.brain and change.voice and change.config.brain.language == "es"


@pytest.mark.parametrize(
    ("key", "value", "part"),
    [
        ("audio.input", "USB Microphone", "microphone"),
        ("audio.output", "Headphones", "speaker"),
        ("brain.name", "embedded", "brain"),
        ("brain.embedded.model", "qwen3-1.7b", "brain"),
        ("voice.speed", 1.2, "voice"),
        ("voice.name", "bf_emma", "voice"),
        ("generation.preset", "ultra", "brain"),
    ],
)
async def test_a_choice_replaces_only_the_part_it_concerns(key, value, part):
    async with screen(factories=make_factories()) as s:
        s.app.menu.choose(Entry("", "", key=key, value=value))
        ((_, change),) = [call for call in s.engine.calls if call[0] == "change"]
        assert isinstance(change, ReplaceComponents)
        assert [n for n in ("microphone", "speaker", "brain", "voice") if getattr(change, n)] == [
            part
        ]


async def test_no_voice_is_a_choice_too():
    async with screen(factories=make_factories()) as s:
        s.app.menu.choose(Entry("", "", key="voice.engine", value="none"))
        assert s.engine.calls[-1][1].voice == "none"


@pytest.mark.slow
async def test_a_choice_is_noted_in_the_conversation():
    async with screen(factories=make_factories()) as s:
        s.app.menu.choose(Entry("Voice", "Speed 1.2", key="voice.speed", value=1.2))
        s.engine.load(None)  # the microphone was lost meanwhile
        await s.settle()
        assert "Voice: Speed 1.2." not in s.text
        assert s.app.session.config == Config()
        s.engine.load(changed=True)
        await s.settle()
        assert "Voice: Speed 1.2." in s.text


async def test_a_choice_that_cannot_be_made_changes_nothing_and_is_explained():
    def refused(config):
        raise ModelError("There is no such voice.")

    async with screen(factories=make_factories(voice=refused)) as s:
        s.app.menu.choose(Entry("", "", key="voice.speed", value=1.2))
        await s.settle()
        assert s.app.session.config == Config()
        assert "There is no such voice." in s.toasts


@pytest.mark.slow
async def test_save_writes_only_the_chosen_values_and_keeps_comments(own_config):
    own_config.parent.mkdir(parents=True)
    own_config.write_text("# mine\n[voice]\nspeed = 1.0  # calm\n")
    async with screen(size=(200, 24), factories=make_factories()) as s:
        s.app.menu.save_settings()
        assert "# mine" in own_config.read_text()
        s.app.menu.choose(Entry("", "", key="voice.speed", value=1.2))
        s.app.menu.choose(Entry("", "", key="ui.theme", value="nord"))
        s.engine.load(changed=True)
        await s.settle()
        s.app.menu.save_settings()
        await s.settle()
        assert "Saved ui.theme, voice.speed to" in s.text
    text = own_config.read_text()
    assert text.startswith("# mine\n[voice]\nspeed = 1.2  # calm\n")
    assert 'theme = "nord"' in text
    config = load_config(own_config, (), {}).config
    assert config == Config(voice=VoiceConfig(speed=1.2), ui=UiConfig(theme="nord"))


@pytest.mark.slow
async def test_save_reports_an_overriding_file_only_if_there_is_one(own_config):
    for name, hidden in ("config.toml", False), ("voxtui.toml", True):
        Path(name).write_text("[ui]\ntheme = 'nord'\n", "utf-8")
        async with screen(size=(400, 24)) as s:
            s.app.menu.choose(Entry("", "", key="ui.theme", value="nord"))
            s.app.menu.save_settings()
            await s.settle()
            assert "Saved ui.theme to" in s.text
            assert ("./voxtui.toml is used instead of it here." in s.text) == hidden


@pytest.mark.slow
async def test_a_config_file_that_cannot_be_read_is_left_as_it_is(own_config):
    own_config.parent.mkdir(parents=True)
    own_config.write_text("[voice\n")
    async with screen(size=(400, 24)) as s:
        s.app.menu.choose(Entry("", "", key="ui.theme", value="nord"))
        s.app.menu.save_settings()
        await s.settle()
        assert "it was not changed" in s.text
    assert own_config.read_text() == "[voice\n"


@pytest.mark.slow
async def test_the_theme_of_the_config_is_used():
    async with screen(config=Config(ui=UiConfig(theme="textual-light"))) as s:
        assert s.app.theme == "textual-light"


async def test_the_first_screen_shows_how_to_talk_the_loading_and_the_privacy():
    async with screen(size=(200, 40), loaded=False) as s:
        s.engine.report(Loading("Chat model", 0.45))
        await s.settle()
        for words in (
            "Press Space, speak, press it again.",
            "Nothing leaves this machine.", "◌ LOADING    Chat model 45%",
        ):  # fmt: skip
            assert words in s.text


async def test_the_level_is_shown_while_models_load():
    async with screen(loaded=False) as s:
        s.engine.level = 0.1
        s.engine.report(MicrophoneOpened("USB Microphone"), Loading("Chat model", 0.45))
        await s.settle()
        s.app.tick()
        s.app.status.show_level()
        await s.settle()
        assert "◌ LOADING" in s.lines[-3]
        assert "USB Microphone" in s.lines[-2]
        assert "━━━━" in s.lines[-3] and "Chat model 45%" in s.lines[-3]


async def test_a_silent_microphone_is_named_once_somebody_speaks_to_it_until_it_is_heard():
    async with screen(size=(80, 24)) as s:
        s.app.status.level.loudest = s.engine.level = 0.0
        s.app.status.check_level("a microphone", False)
        s.engine.begin("typed")
        await s.settle()
        assert "Only silence" not in s.text
        assert s.app.status.level.hears  # silence before anybody spoke says nothing
        s.engine.finish()
        s.engine.begin()
        await s.settle()
        named = "! Only silence comes from the microphone: is it muted?  Enter: choose another"
        assert s.lines[1].strip() == named
        s.engine.finish(Outcome.NO_SPEECH)
        await s.settle()
        assert "Press Space" not in s.text  # nobody would be heard
        s.engine.level = 0.1
        s.app.tick()
        await s.settle()
        assert "Only silence" not in s.text
        assert "Press Space and speak" in s.text


@pytest.mark.slow
async def test_a_microphone_that_was_used_is_named_as_soon_as_it_is_known_to_be_silent():
    async with screen(size=(80, 24)) as s:
        s.app.status.level.loudest = s.engine.level = 0.0
        s.engine.begin()
        s.engine.finish(Outcome.NO_SPEECH)
        await s.settle()
        s.app.status.check_level("a microphone", False)
        await s.settle()
        assert "! Only silence" in s.text


async def test_a_microphone_that_is_silent_while_nobody_speaks_leaves_how_to_talk_on_screen():
    async with screen(size=(80, 24)) as s:
        s.app.status.level.loudest = s.engine.level = 0.0
        s.app.status.check_level("a microphone", False)
        await s.settle()
        assert "Press Space, speak, press it again." in s.text
        assert "Press Space and speak, or type" in s.text


async def test_hands_free_a_silent_microphone_is_named_before_anybody_speaks():
    async with screen(size=(80, 24), config=Config(vad=VadConfig(hands_free=True))) as s:
        s.app.status.level.loudest = s.engine.level = 0.0
        s.app.status.check_level("a microphone", False)
        await s.settle()
        assert "! Only silence comes from the microphone: is it muted?" in s.lines[1]
        s.engine.level = 0.1
        s.app.tick()
        await s.settle()
        assert "Only silence" not in s.text and "Speak, or type" in s.text


async def test_no_microphone_is_shown_after_a_failed_start():
    async with screen(loaded=False) as s:
        s.engine.report(MicrophoneOpened("USB Microphone"))
        s.engine.report(LoadFailed(ModelError("There is no model.")))
        await s.settle()
        s.app.tick()
        s.app.status.show_level()
        await s.settle()
        assert "dBFS" not in s.text and "USB Microphone" not in s.lines[-2]


@pytest.mark.slow
async def test_a_rescan_names_the_new_devices():
    there = list(DEVICES)
    async with screen(size=(120, 40), factories=make_factories(devices=lambda: there)) as s:
        s.app.menu.rescan()
        await s.app.workers.wait_for_complete()
        assert s.commands == ["rescan_devices"]
        there.append(ListedDevice("Headset", 1, 2))
        s.engine.load()
        await s.settle()
        await s.app.workers.wait_for_complete()
        await s.settle()
        assert "New: Microphone: Headset; Speaker: Headset." in " ".join(s.text.split())
        s.app.menu.rescan()
        await s.app.workers.wait_for_complete()
        s.engine.load()
        await s.settle()
        await s.app.workers.wait_for_complete()
        await s.settle()
        assert "No other device was found." in s.text


@pytest.mark.parametrize("state", [State.LISTENING, State.SPEAKING])
async def test_devices_are_not_looked_for_in_the_middle_of_a_turn(state):
    async with screen() as s:
        s.engine.begin()
        s.engine.report(StateChanged(state))
        await s.settle()
        s.app.menu.rescan()
        await s.app.workers.wait_for_complete()
        assert s.commands == []
        assert s.toasts == ["Devices can be searched for only between turns."]


@pytest.mark.slow
async def test_the_receiver_of_the_voice_is_shown_at_the_start_and_when_it_changes():
    there = RemoteBrainConfig(url="https://far.example/v1")
    config = Config(brain=BrainConfig(name="remote", remote=there))
    async with screen(size=(200, 40), loaded=False, config=config) as s:
        assert "Your voice and words go to far.example." in s.text
        s.engine.load()
        await s.settle()
        assert "Nothing leaves this machine" in s.text  # that is what was loaded
        about = "remote: far.example gets your voice and words (m)"
        s.engine.report(Loaded(about, "a voice", None, None, sends_to="far.example"))
        await s.settle()
        assert "Nothing leaves this machine" not in s.text
        assert "far.example gets your voice and words" in s.lines[0]
    async with screen(size=(80, 24)) as s:
        s.engine.report(Loaded(about, "a voice", None, None, sends_to="far.example"))
        await s.settle()
        assert "far.example gets your" in s.lines[0]


async def test_a_microphones_name_is_never_read_as_markup():
    async with screen(size=(100, 30), microphone="HDA [/mic] [red]Analog") as s:
        s.app.status.show_level()
        await s.settle()
        assert "HDA [/mic] [red]Analog" in s.text


@pytest.mark.slow
async def test_entries_of_the_palette_are_never_parsed_as_markup():
    title = "HDA [/mic] [red]Analog"
    async with screen(factories=make_factories(devices=lambda: [ListedDevice(title, 1, 0)])) as s:
        await opened(s, "hda")
        await until(s, lambda: title in s.text)


@pytest.mark.slow
async def test_why_nothing_was_changed_is_never_read_as_markup():
    reason = ModelError("/models/[/new] is no [red]model.")

    def brain(config, notify):
        raise reason

    async with screen(factories=make_factories(brain=brain)) as s:
        s.app.menu.choose(Entry("", "Brain: voxtral", key="brain.name", value="voxtral"))
        await s.settle()
        assert [Toast(toast).render().plain for toast in s.notifications] == [str(reason)]


async def test_a_newly_chosen_microphone_is_checked_and_its_level_reported(monkeypatch):
    monkeypatch.setattr("voxtui.ui.status.LEVEL_CHECK_SECONDS", 0.2)
    monkeypatch.setattr("voxtui.ui.app.TICK_SECONDS", 1e6)
    async with screen(size=(100, 30)) as s:
        s.engine.level = 0.1
        s.engine.load("USB Microphone")
        while "Level of" not in s.text:
            await s.pilot.pause(0.01)
        assert "Level of USB Microphone: −20 dBFS at most" in s.text


# On the real engine.


async def test_a_new_microphone_takes_over_and_the_old_one_is_closed():
    old, new = FakeMicrophone(), FakeMicrophone()
    new.name = "new microphone"
    async with live(ScriptedBrain(), old, FakeSpeaker()) as s:
        s.app.session.engine.post(ReplaceComponents(Config(), microphone=new))
        await s.until("new microphone", "○ READY")
        assert old.closed and not new.closed


async def test_a_microphone_that_does_not_open_leaves_the_old_one():
    old, new = FakeMicrophone(), FakeMicrophone(DeviceError("It is in use."))
    async with live(ScriptedBrain(), old, FakeSpeaker()) as s:
        s.app.session.engine.post(ReplaceComponents(Config(), microphone=new))
        await s.until("Nothing was changed. It is in use.", "○ READY")
        assert new.closed and not old.closed


async def test_a_choice_that_fails_is_neither_marked_nor_saved(own_config):
    broken = FakeMicrophone(DeviceError("It is in use."))
    factories = make_factories(microphone=lambda config: broken)
    async with live(ScriptedBrain(), FakeMicrophone(), FakeSpeaker(), factories) as s:
        s.app.menu.choose(Entry("", "", key="audio.input", value="USB Microphone"))
        await s.until("Nothing was changed. It is in use.", "○ READY")
        assert "Microphone: the system's default ✓" in await titles(s)
        s.app.menu.save_settings()
        assert not own_config.exists()


async def test_a_new_speaker_is_heard_at_once():
    old, new = FakeSpeaker(), FakeSpeaker()
    async with live(ScriptedBrain(), None, old) as s:
        s.app.session.engine.post(ReplaceComponents(Config(), speaker=new))
        await until(s, lambda: old.closed)
        (tone,) = new.chunks
        assert 0.05 < float(np.abs(tone.samples).max()) < 0.2


@pytest.mark.slow
async def test_a_new_brain_answers_the_next_turn():
    old, new = ScriptedBrain(["Old."]), ScriptedBrain(["New."])
    async with live(old, None, FakeSpeaker()) as s:
        s.app.session.engine.post(ReplaceComponents(Config(), brain=new))
        await until(s, lambda: old.closed)
        s.app.session.say("who?")
        await s.until("New.")
        assert new.warmed


async def test_the_systems_default_replaces_a_lost_microphone():
    microphone, spare = FakeMicrophone(), FakeMicrophone()
    spare.name = "built-in microphone"
    async with live(ScriptedBrain(), microphone, FakeSpeaker()) as s:
        devices = s.app.session.engine._components.devices
        devices._system = FakeSoundSystem(lambda: (spare, FakeSpeaker()))
        microphone.unplug()
        await s.until("The microphone was unplugged.")
        await s.until("Listening to built-in microphone now.")
        assert s.app.session.microphone == "built-in microphone"
        assert s.app.session.state is State.READY


@pytest.mark.slow
async def test_a_missing_chat_model_is_fetched_on_request_and_kept_text_is_answered():
    async with screen(loaded=False, factories=make_factories(reload=(reload := Reload()))) as s:
        await s.send("/fetch")
        assert s.commands == []
        await s.type("waiting")
        await s.pilot.press("enter", "escape")
        missing = ModelMissing("The chat model is not here yet.", "Run it.", 1_117_320_768)
        s.engine.report(LoadFailed(missing))
        await s.settle()
        assert "✗ The chat model is not here yet." in s.text
        assert s.text.count("Enter: fetch it (1.1 GB)") == 1
        await s.press("ctrl+r")
        assert reload.made == [False]
        s.engine.report(LoadFailed(missing))
        await s.pilot.press("enter")
        assert reload.made == [False, True]
        s.engine.report(StateChanged(State.LOADING), Loading("fetching it", 0.25))
        await s.settle()
        assert "fetching it 25%" in s.text
        assert "not here" not in s.text
        s.engine.report(LoadFailed(ModelError("The network is down.", "Check it.")))
        await s.settle()
        assert "Check it.  Enter: try again" in s.text
        await s.pilot.press("enter")  # what was wanted: to have it fetched
        assert reload.made == [False, True, True]
        s.engine.load()
        await s.settle()
        assert s.commands == ["change", "change", "change", "say"]
        assert s.engine.calls[-1] == ("say", "waiting")
        await s.press("ctrl+r")
        await s.send("/fetch")
        assert s.toasts[-2:] == [
            "There is no turn to answer again yet.",
            "There is no model to fetch.",
        ]


async def test_other_parts_can_be_chosen_where_nothing_could_be_loaded():
    async with screen(loaded=False, factories=make_factories(reload=(reload := Reload()))) as s:
        s.engine.report(LoadFailed(ModelError("Kokoro's weights are damaged.")))
        await s.settle()
        s.app.menu.choose(Entry("", "Voice: embedded", key="voice.engine", value="embedded"))
        assert s.commands == ["change"]
        change = s.engine.calls[-1][1]
        assert change.config.voice.engine == "embedded" and change.brain and change.voice
        s.engine.report(LoadFailed(ModelError("No.")))
        await s.settle()
        s.app.menu.choose(Entry("", "Microphone: x", key="audio.input", value="x"))
        assert s.engine.calls[-1][1].microphone
        reload.fails = ModelError("That is not installed.")
        s.engine.report(LoadFailed(ModelError("No.")))
        await s.press("ctrl+r")
        assert s.commands == ["change", "change"]
        assert "✗ That is not installed." in s.text


@pytest.mark.slow
async def test_the_palette_lists_the_devices_once_and_not_on_the_ui_thread():
    listed_on = []

    def devices():
        listed_on.append(threading.current_thread())
        return DEVICES

    async with screen(size=(100, 30), factories=make_factories(devices=devices)) as s:
        await opened(s, "headph")
        await until(s, lambda: "Headphones" in s.text)
        assert len(listed_on) == 1
        assert threading.main_thread() not in listed_on


@pytest.mark.slow
async def test_a_sound_server_that_hangs_hides_only_the_devices():
    answers = threading.Event()

    def devices():
        answers.wait(SECONDS)
        return DEVICES

    async with screen(size=(100, 30), factories=make_factories(devices=devices)) as s:
        await opened(s, "short")
        await until(s, lambda: "Very short answers" in s.text)
        answers.set()


async def test_the_garbage_collector_is_frozen_at_the_first_load_only(monkeypatch):
    frozen = []
    monkeypatch.setattr("voxtui.ui.driver.gc_tuning.freeze", lambda: frozen.append(1))
    async with screen(factories=make_factories()) as s:
        s.app.menu.choose(Entry("", "", key="voice.engine", value="none"))
        s.engine.load(changed=True)
        await s.settle()
        assert s.app.session.models_are_new
        assert frozen == [1]


async def test_a_search_finds_the_entries_with_its_words_before_similar_ones():
    async with screen(factories=make_factories()) as s:
        await s.pilot.press("ctrl+p", *"theme")
        await s.settle()
        await s.app.workers.wait_for_complete()
        await s.settle()
        titles = [entry.title for entry in s.app.screen._lines if entry is not None]
        assert titles and all("heme" in title for title in titles)
        await s.pilot.press(*["backspace"] * 5, *"hstory")  # one letter is missing
        await s.settle()
        assert "History" in s.text


async def test_a_long_word_in_the_search_does_not_stop_the_window():
    """Its letters fit some entries in billions of ways."""
    entry = Entry("Look", "ab" * 30)
    async with screen() as s:
        s.app.push_screen(Palette(["Look"], [entry], nothing_more(), {}))
        await s.type("a" * 15)
        assert "abab" in s.text


async def nothing_more() -> list[Entry]:
    return []
