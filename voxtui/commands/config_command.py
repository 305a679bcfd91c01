"""`voxtui config`: print the settings in use, and the source of each."""

from __future__ import annotations

import json

import click
import msgspec

from voxtui.settings.paths import user_config_file, user_folders
from voxtui.settings.save import toml_value
from voxtui.settings.sources import LoadedConfig
from voxtui.skills.timer_store import reminders_file, timers_file
from voxtui.storage.conversation_database import history_file


def show_json(loaded: LoadedConfig) -> None:
    settings = {s.key: {"value": s.value, "source": s.source} for s in loaded.settings}
    told = {"file": str(loaded.path) if loaded.path else None, "settings": settings}
    click.echo(json.dumps(msgspec.to_builtins(told), ensure_ascii=False))


def show(loaded: LoadedConfig) -> None:
    where = loaded.path or f"none (put one at {user_config_file()} or ./voxtui.toml)"
    click.echo(f"# file: {where}")
    folder = user_folders().user_data_path
    click.echo(f"# your timers and reminders: {timers_file(folder)}, {reminders_file(folder)}")
    click.echo(f"# your conversations, if session.keep is true: {history_file()}")
    lines = [f"{setting.key} = {toml_value(setting.value)}" for setting in loaded.settings]
    width = max(len(line) for line in lines if len(line) < 60)
    for line, setting in zip(lines, loaded.settings, strict=True):
        click.echo(f"{line:<{width}}  # {setting.source}")
