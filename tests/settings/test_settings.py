"""config.toml, --set and the environment: what is taken, what is refused, and how it is said."""

import os
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from voxtui.errors import ConfigError
from voxtui.settings.save import save_values, toml_value
from voxtui.settings.schema import BrainConfig, Config, GenerationConfig, RemoteBrainConfig
from voxtui.settings.sources import load_config

SHIPPED = Path(__file__).parents[2] / "config.toml"


@pytest.fixture(autouse=True)
def _an_empty_home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def written(text, name="config.toml"):
    Path(name).write_text(text)
    return Path(name)


def refusal(*sets, file=None, environ=None):
    """What is said about it."""
    with pytest.raises(ConfigError) as caught:
        load_config(written(file) if file is not None else None, sets, environ or {})
    return str(caught.value)


def in_force(*sets, environ=None, path=None):
    loaded = load_config(path, sets, environ or {})
    return {setting.key: (setting.value, setting.source) for setting in loaded.settings}


# The shipped file.


def test_the_shipped_file_says_what_the_code_says():
    assert load_config(SHIPPED, (), {}).config == Config()


def test_the_shipped_file_names_every_key_with_a_comment_and_no_other():
    text = SHIPPED.read_text()
    named = re.findall(r"^(?:# )?([a-z_]+) = .*$", text, re.MULTILINE)
    assert named == [key.rpartition(".")[2] for key in in_force()]
    for line, above in zip(text.splitlines()[1:], text.splitlines(), strict=False):
        if re.match(r"(# )?[a-z_]+ = ", line):
            assert " # " in line or above.startswith("# what"), line


def test_the_commented_values_are_those_of_the_preset_they_stand_for():
    text = SHIPPED.read_text().split("[generation]")[1].split("[streaming]")[0]
    values = dict(re.findall(r"^# ([a-z_]+) = (\S+)", text, re.MULTILINE))
    sampling = GenerationConfig().sampling()
    assert values == {name: toml_value(getattr(sampling, name)) for name in values}
    assert set(values) == set(msgspec.structs.asdict(sampling)) - {"one_sentence", "seed"}


# Where it is found.


def test_the_first_file_found_is_used_whole(tmp_path):
    home = tmp_path / "home" / "voxtui"
    home.mkdir(parents=True)
    (home / "config.toml").write_text("[voice]\nspeed = 1.5\n[audio]\ninput = 'home'\n")
    assert in_force()["voice.speed"] == (1.5, str(home / "config.toml"))
    written("[audio]\ninput = 'here'\n")
    assert in_force()["audio.input"] == ("here", "config.toml")
    assert in_force()["voice.speed"] == (1.0, "default")
    named = written("[audio]\ninput = 'named'\n", "named.toml")
    assert in_force(path=named)["audio.input"] == ("named", "named.toml")


def test_the_file_of_a_clone_which_changes_nothing_does_not_hide_the_users_own(tmp_path):
    here = written(SHIPPED.read_text(encoding="utf-8"))
    assert load_config(None, (), {}).path == here
    own = tmp_path / "home" / "voxtui" / "config.toml"
    own.parent.mkdir(parents=True)
    own.write_text("[voice]\nspeed = 1.5\n[brain.remote]\nurl = 'https://far.example/v1'\n")
    loaded = load_config(None, (), {})
    assert loaded.path == own
    assert loaded.config.brain.remote.url == "https://far.example/v1"
    written(here.read_text(encoding="utf-8").replace("speed = 1.0", "speed = 1.1"))
    assert in_force()["voice.speed"] == (1.1, "config.toml")
    written("[voice]\nspeed = 1.0\n")  # which says that it is to be so here
    assert in_force()["voice.speed"] == (1.0, "config.toml")


def test_a_config_file_of_another_program_is_suspected_to_be_one():
    written("baseURL = 'https://example.org/'\ntitle = 'a blog'\n")
    with pytest.raises(ConfigError, match="Another program's file"):
        load_config(None, (), {})
    with pytest.raises(ConfigError) as refused:
        load_config(Path("config.toml").absolute(), (), {})
    assert not refused.value.hint


def test_without_any_file_the_defaults_are_in_force():
    loaded = load_config(None, (), {})
    assert loaded.path is None
    assert loaded.config == Config()


def test_an_option_beats_the_environment_which_beats_the_file():
    written("[voice]\nspeed = 0.6\n")
    environ = {"VOXTUI_VOICE__SPEED": "0.7"}
    assert in_force()["voice.speed"] == (0.6, "config.toml")
    assert in_force(environ=environ)["voice.speed"] == (0.7, "VOXTUI_VOICE__SPEED")
    both = in_force("voice.speed=0.8", "voice.speed=0.9", environ=environ)
    assert both["voice.speed"] == (0.9, "--set")


def test_a_nested_key_may_come_from_the_environment():
    environ = {"VOXTUI_BRAIN__EMBEDDED__MODEL": "/m.gguf", "VOXTUI_HOME": "x", "OTHER__X": "y"}
    loaded = load_config(None, (), environ)
    assert loaded.config.brain.embedded.model == "/m.gguf"


def test_every_value_in_force_has_a_source_also_those_of_the_preset():
    values = in_force("generation.preset=ultra", "generation.top_k=7")
    assert values["generation.preset"] == ("ultra", "--set")
    assert values["generation.max_new_tokens"] == (25, "preset ultra")
    assert values["generation.top_k"] == (7, "--set")


def test_the_short_preset_is_one_short_sentence_that_hardly_varies():
    ultra = GenerationConfig(preset="ultra").sampling()
    assert (ultra.min_new_tokens, ultra.max_new_tokens, ultra.one_sentence) == (2, 25, True)
    assert (ultra.temperature, ultra.top_p, ultra.top_k) == (0.05, 0.9, 30)
    assert ultra.repetition_penalty == 1.2


def test_whether_words_are_written_down_afterwards_is_said_for_each_brain():
    off = {"remote": RemoteBrainConfig(idle_transcript=False)}
    assert BrainConfig(**off).idle_transcript
    assert not BrainConfig(name="remote", **off).idle_transcript


def test_where_the_voice_would_go_is_told_without_paths():
    both = RemoteBrainConfig(
        url="https://far.example/v1",
        transcription_model="whisper",
        transcription_url="http://127.0.0.1:8081/v1",
    )
    assert both.hosts == "127.0.0.1:8081 and far.example"


# What a text means.


@pytest.mark.parametrize(
    ("said", "key", "value"),
    [
        ("audio.input=USB Microphone", "audio.input", "USB Microphone"),
        ('audio.input="USB Microphone"', "audio.input", "USB Microphone"),
        ("audio.input=2", "audio.input", "2"),
        ("audio.input=", "audio.input", ""),
        ("audio.input=a=b", "audio.input", "a=b"),
        ("audio.input=true", "audio.input", "true"),
        ("voice.engine=none", "voice.engine", "none"),
        ("voice.speed=2", "voice.speed", 2.0),
        ("vad.hands_free=true", "vad.hands_free", True),
        (" vad.end_ms = 900 ", "vad.end_ms", 900),
        ("history.turns=0", "history.turns", 0),
    ],
)
def test_a_value_is_toml_or_bare_text(said, key, value):
    assert in_force(said)[key] == (value, "--set")
    name = "VOXTUI_" + key.upper().replace(".", "__")
    text = said.partition("=")[2].strip()
    assert in_force(environ={name: text})[key] == (value, name)


# What is refused.


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        ("[voice]\nsped = 1.0", "voice.sped: unknown key; did you mean voice.speed?"),
        ("[vocie]\nspeed = 1.0", "vocie: unknown key; did you mean voice?"),
        ("temperature = 1", "temperature: unknown key; did you mean generation.temperature?"),
        (
            "[audio]\nrate = 1",
            "audio.rate: unknown key; there is in audio: input, output, max_utterance_s.",
        ),
        (
            "[brain.embedded]\nmodl = 'x'",
            "brain.embedded.modl: unknown key; did you mean brain.embedded.model?",
        ),
        ("[voice]\nspeed = 9", "voice.speed: 9 is not a number from 0.5 to 2."),
        ("[voice]\nspeed = 'fast'", 'voice.speed: "fast" is not a number from 0.5 to 2.'),
        ("[voice]\nspeed = true", "voice.speed: true is not a number from 0.5 to 2."),
        ("[voice]\nspeed = nan", "voice.speed: nan is not a number from 0.5 to 2."),
        ("[targets]\nttft_ms = inf", "targets.ttft_ms: inf is not a number above 0."),
        (
            "[voice]\nengine = 'embeded'",
            'voice.engine: "embeded" is not one of auto, embedded, kokoro, none; '
            "did you mean embedded?",
        ),
        ("[vad]\nend_ms = 1.5", "vad.end_ms: 1.5 is not a whole number from 64 to 10000."),
        (
            "[vad]\nend_ms = 1" + "0" * 99,
            "vad.end_ms: 1" + "0" * 59 + "… is not a whole number from 64 to 10000.",
        ),
        (
            "[generation]\nmax_new_tokens = 0",
            "generation.max_new_tokens: 0 is not a whole number from 1 to 4096.",
        ),
        ("[vad]\nhands_free = 1", "vad.hands_free: 1 is not true or false."),
        ("[audio]\ninput = 3", 'audio.input: 3 is not a text; did you mean "3"?'),
        ("[audio]\ninput = true", "audio.input: true is not a text."),
        ("[brain]\nname = []", "brain.name: [] is not one of auto, embedded, remote, voxtral."),
        (
            "[brain.embedded]\nmodel = ''",
            'brain.embedded.model: "" is not a text with something in it.',
        ),
        ('[ui]\nsave_dir = "a\\u0000b"', 'ui.save_dir: "a\\u0000b" is not a text.'),
        (
            "[brain.remote]\nurl = 'https://me:secret@far.example/v1'",
            "brain.remote: url may hold no password: the environment variable VOXTUI_API_KEY is "
            "for a key.",
        ),
        (
            "[brain.remote]\ntranscription_url = 'http://far.example/v1'",
            "brain.remote: transcription_url needs a transcription_model.",
        ),
        ("voice = 'loud'", "voice: is a section, not a key; a key of it is voice.engine."),
        ("[streaming]\nmin_words = 3", "streaming: max_words 2 is less than min_words 3."),
        (
            "[generation]\nmin_new_tokens = 9\nmax_new_tokens = 8",
            "generation: max_new_tokens 8 is less than min_new_tokens 9.",
        ),
        ("[voice]\n= 1", "is not valid TOML: Invalid statement (at line 2, column 1)."),
        ("[voice]\nspeed = fast", "is not valid TOML: Invalid value (at line 2, column 9)."),
        ("a = " + "[" * 5000, "is nested too deeply."),
    ],
)
def test_what_the_file_says_wrong_is_said_with_its_place(file, sentence):
    assert refusal(file=file) == f"config.toml: {sentence}"


@pytest.mark.parametrize(
    "url",
    [
        "far.example/v1",
        "ftp://far.example/v1",
        "http://:8000/v1",
        "http://far.example:0/v1",
        "http://far.example:99999/v1",
        "http://[::1/v1",
        "http://far.example/v 1",
    ],
)
def test_what_is_no_address_of_a_server_is_refused(url):
    form = f'brain.remote: url "{url}" is not of the form http://HOST:PORT/v1.'
    assert refusal(file=f"[brain.remote]\nurl = '{url}'") == f"config.toml: {form}"


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("voice.speed=fast", '--set: voice.speed: "fast" is not a number from 0.5 to 2.'),
        ("voice.sped=1", "--set: voice.sped: unknown key; did you mean voice.speed?"),
        ("voice=1", "--set: voice: is a section, not a key; a key of it is voice.engine."),
        ("voice.speed", "--set voice.speed: is not of the form section.key=value."),
    ],
)
def test_what_an_option_says_wrong_is_said_with_its_place(said, sentence):
    assert refusal(said) == sentence


def test_a_file_that_just_lies_there_gives_the_terminal_no_command():
    file = '"\\u001b]0;title\\u0007\\u009b2J" = 1'
    assert refusal(file=file).startswith("config.toml: ]0;title2J: unknown key; ")


def test_what_the_environment_says_wrong_is_said_with_its_place():
    assert refusal(environ={"VOXTUI_VOICE__SPEED": "9"}).startswith(
        "VOXTUI_VOICE__SPEED: voice.speed: 9 is not"
    )
    assert refusal(environ={"VOXTUI_VOICE__SPED": "9"}).startswith("VOXTUI_VOICE__SPED: voice.sped")
    assert refusal(environ={"VOXTUI_AUDIO__INPUT": "\udcff"}).startswith("VOXTUI_AUDIO__INPUT: ")
    assert refusal(environ={"VOXTUI_BRAIN_REMOTE_URL": "x"}) == (
        "VOXTUI_BRAIN_REMOTE_URL: is not read; did you mean VOXTUI_BRAIN__REMOTE__URL?"
    )


def test_keys_from_two_places_that_contradict_each_other_name_both():
    written("[streaming]\nmin_words = 2\n")
    assert refusal("streaming.max_words=1") == (
        "config.toml, --set: streaming: max_words 1 is less than min_words 2."
    )


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path):
    def said(path):
        with pytest.raises(ConfigError) as caught:
            load_config(path, (), {})
        return str(caught.value)

    assert said(Path("no.toml")) == "no.toml: there is no such file."
    assert said(tmp_path) == f"{tmp_path}: is a directory, not a file."
    Path("latin.toml").write_bytes(b"[audio]\ninput = '\xe9'\n")
    assert said(Path("latin.toml")) == "latin.toml: is not UTF-8 text."
    assert said(Path("latin.toml/x")) == "latin.toml/x: cannot be read: Not a directory."


def test_a_directory_in_the_place_of_the_file_is_not_passed_over():
    Path("config.toml").mkdir()
    assert refusal() == "config.toml: is a directory, not a file."


def test_a_link_that_leads_nowhere_is_not_passed_over():
    Path("config.toml").symlink_to("dotfiles/voxtui.toml")
    assert refusal() == "config.toml: there is no such file."


def test_a_mark_that_an_editor_put_before_the_text_is_no_part_of_it():
    written("\ufeff[voice]\nspeed = 1.5\n")
    assert load_config(None, (), {}).config.voice.speed == 1.5


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_one_sentence():
    path = written("")
    path.chmod(0)
    assert refusal() == "config.toml: cannot be read: Permission denied."


def test_a_config_of_ones_own_that_cannot_be_looked_at_is_not_taken_for_none(tmp_path):
    (tmp_path / "home").symlink_to("home")
    own = tmp_path / "home" / "voxtui" / "config.toml"
    assert refusal().startswith(f"{own}: cannot be read: Too many levels of symbolic links")


def test_a_home_that_is_a_file_holds_no_config(tmp_path):
    (tmp_path / "home").touch()
    assert load_config(None, (), {}).path is None


def test_settings_are_saved_where_a_link_leads_with_the_rights_that_file_had(tmp_path):
    kept = written("# mine\n[voice]\nspeed = 1.5  # fast\n", "dotfile.toml")
    kept.chmod(0o600)
    own = tmp_path / "home" / "voxtui" / "config.toml"
    own.parent.mkdir(parents=True)
    own.symlink_to(kept.absolute())
    assert save_values({"voice.speed": 1.2, "ui.theme": "nord"}) == own
    assert own.is_symlink()
    assert kept.stat().st_mode & 0o777 == 0o600
    text = '# mine\n[voice]\nspeed = 1.2  # fast\n\n[ui]\ntheme = "nord"\n'
    assert kept.read_text().replace("\n\n", "\n") == text.replace("\n\n", "\n")


def test_settings_that_find_no_room_leave_the_file_as_it_was_and_nothing_beside_it(
    tmp_path, monkeypatch
):
    own = tmp_path / "home" / "voxtui" / "config.toml"
    own.parent.mkdir(parents=True)
    own.write_text("[voice]\nspeed = 1.5\n")

    def full(path, text, encoding):
        path.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(ConfigError, match="was not written: No space left on device"):
        save_values({"voice.speed": 1.2})
    assert own.read_text() == "[voice]\nspeed = 1.5\n"
    assert list(own.parent.iterdir()) == [own]


KEYS = [setting.key for setting in load_config(SHIPPED, (), {}).settings]
ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=40)
LINES = st.lists(
    st.sampled_from(
        [f"{key} = " for key in KEYS]
        + ["[voice]\n", "[[vad]]\n", "1", "-0.0", "1e999", '"x"', "\n", "nan", "true"]
        + ["1979-05-27", "{a = 1}", "[[]]", "\ufeff", "\x00"]
    )
)


def said_about(path, sets):
    """The refusal, or a stand-in for one where it is taken."""
    try:
        load_config(path, sets, {})
    except ConfigError as error:
        return str(error)
    return "any.toml: taken" if path else "--set: taken"


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.one_of(st.binary(max_size=200), LINES.map(lambda words: "".join(words).encode())))
@example(b"a = " + b"9" * 5000)
@example(b"[voice]\nspeed = 1" + b"0" * 400)
def test_any_bytes_are_a_config_or_one_sentence(raw):
    path = Path("any.toml")
    path.write_bytes(raw)
    assert said_about(path, ()).encode().startswith(b"any.toml: ")


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(KEYS) | ANY_TEXT, ANY_TEXT)
def test_any_option_is_taken_or_refused_in_one_sentence(key, text):
    assert said_about(None, [f"{key}={text}"]).startswith("--set")


@pytest.mark.parametrize("key", ["url", "transcription_url"])
def test_a_file_that_happens_to_lie_here_sends_nobodys_voice_away(key):
    written(
        f"[brain.remote]\n{key} = 'https://far.example/v1'\n"
        + ("" if key == "url" else "transcription_model = 'w'\n")
    )
    with pytest.raises(ConfigError) as refused:
        load_config(None, (), {})
    assert refused.value.message == (
        f"config.toml: brain.remote.{key}: only a file of your own may send your voice elsewhere."
    )
    assert "--config config.toml" in refused.value.hint
    meant = load_config(Path("config.toml"), (), {}).config
    assert getattr(meant.brain.remote, key) == "https://far.example/v1"


def test_what_is_no_address_at_all_counts_as_one_elsewhere():
    written("[brain.remote]\nurl = 'http://[::1/v1'\n")
    with pytest.raises(ConfigError, match="only a file of your own"):
        load_config(None, (), {})


def test_a_server_on_this_machine_may_be_named_by_any_file():
    written("[brain.remote]\nurl = 'http://127.0.0.1:8000/v1'\n")
    assert load_config(None, (), {}).config.brain.remote.url == "http://127.0.0.1:8000/v1"
