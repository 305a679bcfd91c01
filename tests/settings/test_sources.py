"""The sources of values: the file, the environment and --set; and refused values."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.settings.conftest import write
from voxtui.errors import ConfigError
from voxtui.settings.schema import Config
from voxtui.settings.sources import load_config, project_keys, with_value

SHIPPED = Path(__file__).parents[2] / "config.toml"


def in_force(*sets, environ=None, path=None):
    loaded = load_config(path, sets, environ or {})
    return {setting.key: (setting.value, setting.source) for setting in loaded.settings}


def error_of(*sets, file=None, environ=None):
    path = write("own.toml", file) if file is not None else None
    with pytest.raises(ConfigError) as caught:
        load_config(path, sets, environ or {})
    return str(caught.value)


# The search order.


def test_the_first_file_found_is_used_alone(user_file):
    write(user_file, "[voice]\nspeed = 1.5\n[audio]\ninput = 'user'\n")
    assert in_force()["voice.speed"] == (1.5, str(user_file))
    write("voxtui.toml", "[audio]\ninput = 'project'\n")
    assert in_force()["audio.input"] == ("project", "voxtui.toml")
    assert in_force()["voice.speed"] == (1.0, "default")
    named = write("named.toml", "[audio]\ninput = 'named'\n")
    assert in_force(path=named)["audio.input"] == ("named", "named.toml")


def test_without_a_file_the_defaults_are_in_force():
    loaded = load_config(None, (), {})
    assert (loaded.path, loaded.config, loaded.notice) == (None, Config(), "")


@pytest.mark.parametrize("link", [False, True])
def test_a_voxtui_toml_that_cannot_be_read_is_an_error(link):
    if link:
        Path("voxtui.toml").symlink_to("dotfiles/nowhere.toml")
    else:
        Path("voxtui.toml").mkdir()
    assert error_of().startswith("voxtui.toml: ")


def test_a_user_file_that_cannot_be_found_for_an_error_is_not_ignored(user_file):
    user_file.parents[1].symlink_to("home")
    assert error_of().startswith(f"{user_file}: cannot be read: Too many levels of symbolic links")


def test_a_home_that_is_a_file_has_no_config(user_file):
    user_file.parents[1].touch()
    assert load_config(None, (), {}).path is None


# ./config.toml


PLANTED = """
[brain]
name = "remote"
[brain.remote]
url = "http://127.0.0.1:18432/v1"
"""


def test_config_toml_in_the_current_directory_is_not_read():
    write("config.toml", PLANTED)
    loaded = load_config(None, (), {})
    assert (loaded.path, loaded.config) == (None, Config())
    assert loaded.notice == (
        "./config.toml is not read: start with --config config.toml, or rename it to voxtui.toml."
    )


def test_config_toml_is_read_when_it_is_named():
    loaded = load_config(write("config.toml", PLANTED), (), {})
    assert loaded.config.brain.remote.url == "http://127.0.0.1:18432/v1"
    assert loaded.notice == ""


@pytest.mark.parametrize(
    "text",
    [
        SHIPPED.read_text(encoding="utf-8"),
        "baseURL = 'https://example.org/'\ntitle = 'a blog'\n",
        "[params]\nx = 1\n",
        "not TOML",
        "",
        "a = " + "[" * 5000,
    ],
    ids=["as shipped", "another program", "its section", "not TOML", "empty", "nested"],
)
def test_a_config_toml_without_settings_of_ours_needs_no_notice(text):
    write("config.toml", text)
    assert load_config(None, (), {}).notice == ""


def test_a_changed_copy_of_the_shipped_file_has_the_notice():
    text = SHIPPED.read_text(encoding="utf-8")
    write("config.toml", text.replace("speed = 1.0", "speed = 1.1"))
    assert "is not read" in load_config(None, (), {}).notice


def test_a_config_toml_that_is_not_a_regular_file_is_ignored():
    Path("config.toml").symlink_to("/dev/zero")
    assert load_config(None, (), {}).notice == ""


# ./voxtui.toml


@pytest.mark.parametrize("key", in_force())
def test_voxtui_toml_may_set_an_allow_list_of_keys_only(key, user_file):
    section, _, name = key.rpartition(".")
    value, _ = in_force()[key]
    shown = str(value).lower() if isinstance(value, bool) else repr(value)
    shown = "[]" if value == () else shown
    write("voxtui.toml", f"[{section}]\n{name} = {shown}\n")
    if key in project_keys():
        assert in_force()[key] == (value, "voxtui.toml")
        return
    with pytest.raises(ConfigError) as refused:
        load_config(None, (), {})
    assert refused.value.message == (
        f"voxtui.toml: {key}: cannot be set by a file in the current directory."
    )
    assert refused.value.hint == f"Set it in {user_file}, or start with --config voxtui.toml."
    assert in_force(path=Path("voxtui.toml"))[key] == (value, "voxtui.toml")


def test_the_allow_list_names_keys_of_the_screen_the_audio_and_the_turn_only():
    """It names keys, not sections: a key that is added to the schema later is refused."""
    sections = {key.split(".")[0] for key in project_keys()}
    assert sections == {"ui", "targets", "streaming", "vad", "generation", "audio"}
    assert "ui.save_dir" not in project_keys()


def test_a_file_of_a_stranger_does_not_turn_the_microphone_on():
    write("voxtui.toml", "[vad]\nhands_free = true\n")
    assert error_of().startswith("voxtui.toml: vad.hands_free: cannot be set by a file in ")
    assert not {"vad.hands_free", "vad.listen_while_speaking"} & project_keys()


# Precedence and sources.


def test_an_option_beats_the_environment_which_beats_the_file(user_file):
    write(user_file, "[voice]\nspeed = 0.6\n")
    environ = {"VOXTUI_VOICE__SPEED": "0.7"}
    assert in_force()["voice.speed"] == (0.6, str(user_file))
    assert in_force(environ=environ)["voice.speed"] == (0.7, "VOXTUI_VOICE__SPEED")
    both = in_force("voice.speed=0.8", "voice.speed=0.9", environ=environ)
    assert both["voice.speed"] == (0.9, "--set")


def test_the_environment_sets_nested_keys():
    environ = {"VOXTUI_BRAIN__EMBEDDED__MODEL": "/m.gguf", "VOXTUI_HOME": "x", "OTHER__X": "y"}
    assert load_config(None, (), environ).config.brain.embedded.model == "/m.gguf"


def test_every_value_in_force_has_a_source():
    values = in_force("generation.preset=ultra", "generation.top_k=7", "brain.name=voxtral",
                      "targets.total_ms=900")  # fmt: skip
    assert values["generation.preset"] == ("ultra", "--set")
    assert values["generation.max_new_tokens"] == (25, "preset ultra of the voxtral brain")
    assert values["generation.top_k"] == (7, "--set")
    assert values["targets.ttft_ms"] == (100, "default of the voxtral brain")
    assert values["targets.total_ms"] == (900, "--set")
    assert in_force()["targets.ttft_ms"] == (300, "default of the embedded brain")
    assert in_force()["generation.temperature"] == (0, "preset balanced of the embedded brain")
    assert in_force("brain.name=remote")["generation.temperature"][0] == 0.2


# Text values.


@pytest.mark.parametrize(
    ("option", "key", "value"),
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
def test_a_value_is_toml_or_bare_text(option, key, value):
    assert in_force(option)[key] == (value, "--set")
    name = "VOXTUI_" + key.upper().replace(".", "__")
    text = option.partition("=")[2].strip()
    assert in_force(environ={name: text})[key] == (value, name)


# Errors.


SAID, RUN = "sentence = 'lamp'\n", "run = ['true']\n"
EXAMPLE = "docs/tools.md shows an example."


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        ("[voice]\nsped = 1.0", "voice.sped: unknown key; did you mean voice.speed?"),
        ("[vocie]\nspeed = 1.0", "vocie: unknown key; did you mean voice?"),
        ("temperature = 1", "temperature: unknown key; did you mean generation.temperature?"),
        (
            "[audio]\nrate = 1",
            "audio.rate: unknown key; the keys in audio are: input, output, echo_cancellation, "
            "max_utterance_s.",
        ),
        (
            "[brain.embedded]\nmodl = 'x'",
            "brain.embedded.modl: unknown key; did you mean brain.embedded.model?",
        ),
        ("[voice]\nspeed = 9", "voice.speed = 9: must be a number, at least 0.5 and at most 2."),
        (
            "[voice]\nspeed = 'fast'",
            'voice.speed = "fast": must be a number, at least 0.5 and at most 2.',
        ),
        (
            "[voice]\nspeed = true",
            "voice.speed = true: must be a number, at least 0.5 and at most 2.",
        ),
        ("[voice]\nspeed = nan", "voice.speed = nan: must be a finite number."),
        ("[targets]\nttft_ms = inf", "targets.ttft_ms = inf: must be a finite number."),
        (
            "[voice]\nengine = 'embeded'",
            'voice.engine = "embeded": must be one of auto, embedded, kokoro, none; '
            "did you mean embedded?",
        ),
        (
            "[brain]\nname = []",
            "brain.name = []: must be one of auto, embedded, remote, voxtral.",
        ),
        (
            "[vad]\nend_ms = 1.5",
            "vad.end_ms = 1.5: must be a whole number, at least 64 and at most 10000.",
        ),
        (
            "[vad]\nend_ms = 1" + "0" * 99,
            f"vad.end_ms = 1{'0' * 59}…: must be a whole number, at least 64 and at most 10000.",
        ),
        ("[vad]\nhands_free = 1", "vad.hands_free = 1: must be true or false."),
        ("[audio]\ninput = 3", 'audio.input = 3: must be text; did you mean "3"?'),
        (
            "[brain.embedded]\nmodel = ''",
            'brain.embedded.model = "": must be text, and not empty.',
        ),
        (
            '[ui]\nsave_dir = "a\\u0000b"',
            'ui.save_dir = "a\\u0000b": must be text without NUL characters.',
        ),
        (
            "[brain.remote]\nurl = 'https://me:secret@far.example/v1'",
            "brain.remote: url must not contain credentials; "
            "set the environment variable VOXTUI_API_KEY.",
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
        (
            "[vad]\nlisten_while_speaking = true",
            "vad: listen_while_speaking needs hands_free = true: "
            "otherwise speech ends the answer, but starts no turn.",
        ),
        (
            "x" * 900 + " = 1",
            f"{'x' * 60}…: unknown key; the sections are: "
            "brain, brain.embedded, brain.voxtral, brain.remote, voice, voice.kokoro, audio, vad, "
            "generation, streaming, history, input, session, targets, metrics, tools, mcp, "
            "dictate, ui, ui.keys, serve.",
        ),
        ("[voice]\n= 1", "is not valid TOML: Invalid statement (at line 2, column 1)."),
        ("[voice]\nspeed = fast", "is not valid TOML: Invalid value (at line 2, column 9)."),
        ("a = " + "[" * 5000, "is nested too deeply."),
        (
            '[[tools.command]]\nname = "lamp"\nsentence = "lamp {x}"\nrun = ["true"]',
            "tools.command[0]: lamp: its sentence and its arguments differ in x. "
            "docs/tools.md shows an example.",
        ),
        (
            '[[tools.command]]\nname = "lamp"\nsentence = "lamp"\nrun = ["echo", "{output}"]',
            "tools.command[0]: lamp: there is no argument output. docs/tools.md shows an example.",
        ),
        (
            '[[tools.command]]\nname = "lamp"\nsentence = "from {x} to {x}"\nrun = ["true"]\n'
            'arguments.x = "text"',
            "tools.command[0]: lamp: its sentence has an argument twice. "
            "docs/tools.md shows an example.",
        ),
        *(
            (f'[[tools.command]]\nname = "lamp"\n{more}', f"tools.command[0].{sentence}. {EXAMPLE}")
            for more, sentence in (
                (f"{SAID}run = []", "run: must not be empty"),
                (f"{RUN}sentence = ''", "sentence: must not be empty"),
                (f"{RUN}sentence = '{'l' * 201}'", "sentence: must have at most 200 characters"),
                (f"{SAID}{RUN}timeout_s = 121", "timeout_s: must be at most 120.0"),
                (f"{SAID}{RUN}timeout_s = 0", "timeout_s: must be above 0.0"),
                (f"{SAID}{RUN}ask = 1", "ask: has a value of the wrong type"),
                (
                    f"{SAID}{RUN}arguments.x = 'y'",
                    'arguments[...]: must be a list, "integer" or "text"',
                ),
            )
        ),
        *(
            (
                f"[vad]\nname = '{name}'",
                f'vad.name = "{name}": must be words of the letters a to z, '
                "of at most 40 characters.",
            )
            for name in ("Hey 2", "a" * 41)
        ),
        (
            '[[mcp.server]]\nname = "time"\ncommand = "x"\nargs = "y"',
            "mcp.server[0].args: must be a list. docs/tools.md shows an example.",
        ),
        (
            '[[mcp.server]]\nname = "My Server"\ncommand = "x"',
            "mcp.server[0].name: must be a letter and then at most 15 letters, digits and _, all "
            "in lower case. docs/tools.md shows an example.",
        ),
        (
            '[[mcp.server]]\nnme = "x"\ncommand = "x"',
            "mcp.server[0]: unknown key nme. docs/tools.md shows an example.",
        ),
        (
            '[[mcp.server]]\ncommand = "x"',
            "mcp.server[0]: name is missing. docs/tools.md shows an example.",
        ),
        (
            '[tools]\nshared = ["disk", "a\\u0000b"]',
            'tools.shared = ["disk", "a\\u0000b"]: must be text without NUL characters.',
        ),
    ],
)
def test_an_error_in_the_file_is_named_with_file_and_key(file, sentence):
    assert error_of(file=file) == f"own.toml: {sentence}"


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        (
            "voice.speed=fast",
            '--set: voice.speed = "fast": must be a number, at least 0.5 and at most 2.',
        ),
        ("voice.sped=1", "--set: voice.sped: unknown key; did you mean voice.speed?"),
        ("voice=1", "--set: voice: is a section, not a key; a key of it is voice.engine."),
        ("voice.speed", "--set voice.speed: is not of the form section.key=value."),
        ("=1", "--set =1: is not of the form section.key=value."),
        (
            "brain.language=xx",
            '--set: brain.language = "xx": must be one of "", de, en, es, fr, hi, it, nl, pt.',
        ),
        (
            "history.foo=1",
            "--set: history.foo: unknown key; the keys in history are: turns, max_tokens.",
        ),
    ],
)
def test_an_error_in_an_option_is_named_with_its_key(option, sentence):
    assert error_of(option) == sentence


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("VOXTUI_VAD__HANDS_FREE", "9", ": vad.hands_free = 9: must be true or false."),
        ("VOXTUI_VOICE__SPED", "9", ": voice.sped: unknown key; did you mean voice.speed?"),
        ("VOXTUI_AUDIO__INPUT", "\udcff", ': audio.input = "\\udcff": must be valid Unicode.'),
        (
            "VOXTUI_BRAIN_REMOTE_URL", "x",
            ": is not read; did you mean VOXTUI_BRAIN__REMOTE__URL?",
        ),
    ],
)  # fmt: skip
def test_an_error_in_the_environment_is_named_with_its_variable(name, value, sentence):
    assert error_of(environ={name: value}) == name + sentence


def test_control_characters_of_a_file_do_not_reach_the_terminal():
    file = '"\\u001b]0;title\\u0007\\u009b2J" = 1'
    assert error_of(file=file).startswith("own.toml: ]0;title2J: unknown key; ")


def test_a_changed_value_is_checked_like_one_of_a_file():
    assert with_value(Config(), "voice.speed", 1.2).voice.speed == 1.2
    with pytest.raises(ConfigError, match=r"chosen: voice\.speed = 9"):
        with_value(Config(), "voice.speed", 9)
    with pytest.raises(ConfigError, match="chosen: vad: listen_while_speaking needs"):
        with_value(Config(), "vad.listen_while_speaking", True)


def test_contradicting_keys_name_both_sources():
    assert error_of("streaming.max_words=1", file="[streaming]\nmin_words = 2\n") == (
        "own.toml, --set: streaming: max_words 1 is less than min_words 2."
    )


KEYS = [setting.key for setting in load_config(SHIPPED, (), {}).settings]
ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=40)
LINES = st.lists(
    st.sampled_from(
        [f"{key} = " for key in KEYS]
        + ["[voice]\n", "[[vad]]\n", "1", "-0.0", "1e999", '"x"', "\n", "nan", "true"]
        + ["1979-05-27", "{a = 1}", "[[]]", "\ufeff", "\x00"]
    )
)


def outcome(path, sets):
    try:
        load_config(path, sets, {})
    except ConfigError as error:
        return str(error)
    return "valid"


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.one_of(st.binary(max_size=200), LINES.map(lambda words: "".join(words).encode())))
@example(b"a = " + b"9" * 5000)
@example(b"[voice]\nspeed = 1" + b"0" * 400)
def test_any_bytes_are_a_config_or_one_sentence(raw):
    Path("any.toml").write_bytes(raw)
    found = outcome(Path("any.toml"), ())
    assert found == "valid" or found.startswith("any.toml: ")


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(KEYS) | ANY_TEXT, ANY_TEXT)
def test_any_option_is_valid_or_one_sentence(key, text):
    found = outcome(None, [f"{key}={text}"])
    assert found == "valid" or found.startswith("--set")


# Words of an older version.


@pytest.mark.parametrize(("old", "meant"), [("auto", True), ("off", False)])
def test_words_of_an_older_version_are_understood_where_true_or_false_stands_now(old, meant):
    path = write("own.toml", f'[brain.voxtral]\nfast = "{old}"\n')
    for loaded in (
        load_config(path, (), {}),
        load_config(None, [f"brain.voxtral.fast={old}"], {}),
        load_config(None, (), {"VOXTUI_BRAIN__VOXTRAL__FAST": old}),
    ):
        assert loaded.config.brain.voxtral.fast is meant
        assert not loaded.notice
    with pytest.raises(ConfigError, match=r"must be true or false\."):
        load_config(None, ["brain.voxtral.fast=quick"], {})
