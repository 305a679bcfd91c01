"""Settings chosen in the palette are written to the user's config file."""

import os
import tomllib

import pytest

from tests.settings.conftest import write
from voxtui.errors import ConfigError
from voxtui.settings.save import save_values, toml_value
from voxtui.settings.sources import load_config


def test_saved_settings_keep_comments_the_link_and_its_permissions(user_file):
    kept = write("dotfile.toml", "# mine\n[voice]\nspeed = 1.5  # fast\n")
    kept.chmod(0o600)
    user_file.parent.mkdir(parents=True)
    user_file.symlink_to(kept.absolute())
    assert save_values({"voice.speed": 1.2, "ui.theme": "nord"}) == user_file
    assert user_file.is_symlink()
    assert kept.stat().st_mode & 0o777 == 0o600
    text = '# mine\n[voice]\nspeed = 1.2  # fast\n\n[ui]\ntheme = "nord"\n'
    assert kept.read_text().replace("\n\n", "\n") == text.replace("\n\n", "\n")


def test_a_shown_value_gives_the_terminal_no_command_and_is_the_same_value():
    text = "a\x1b[2J\x7f\x9b2J\u202e\n"
    shown = toml_value(text)
    assert shown == r'"a\u001b[2J\u007f\u009b2J\u202e\n"'
    assert tomllib.loads(f"value = {shown}")["value"] == text


def test_saved_settings_are_in_force_beside_the_config_toml_of_a_clone(user_file):
    write("config.toml", "[voice]\nspeed = 1.1\n")
    save_values({"voice.speed": 1.2})
    loaded = load_config(None, (), {})
    assert (loaded.path, loaded.config.voice.speed) == (user_file, 1.2)


def test_a_full_disk_leaves_the_file_unchanged_and_nothing_beside_it(user_file, monkeypatch):
    write(user_file, "[voice]\nspeed = 1.5\n")

    def full(*files):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ConfigError, match="cannot be written: No space left on device"):
        save_values({"voice.speed": 1.2})
    assert user_file.read_text() == "[voice]\nspeed = 1.5\n"
    assert list(user_file.parent.iterdir()) == [user_file]


@pytest.mark.parametrize("text", ["[voice\n", "voice = 1\n", "[voice.speed]\nx = 1\n"])
def test_an_invalid_file_is_not_changed(user_file, text):
    write(user_file, text)
    values = {"voice.speed": 1.2}
    if "[voice.speed]" in text:
        save_values(values)
        assert load_config(None, (), {}).config.voice.speed == 1.2
        return
    with pytest.raises(ConfigError, match="it was not changed"):
        save_values(values)
    assert user_file.read_text() == text


def test_a_planted_link_beside_the_file_is_not_followed(user_file):
    write(user_file, "")
    victim = write("victim", "precious")
    for name in ("config.new", ".config.toml.new", "config.toml.new"):
        (user_file.parent / name).symlink_to(victim.absolute())
    save_values({"voice.speed": 1.2})
    assert victim.read_text() == "precious"
