from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def user_file(tmp_path, monkeypatch):
    """Return the path of the user's config file, in an empty home, from an empty directory."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "home" / "voxtui" / "config.toml"


def write(path, text):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
