"""`voxtui`: open the screen."""

from __future__ import annotations

from functools import partial

from voxtui.audio.devices import list_devices
from voxtui.commands.stderr import native_log, native_stderr_in
from voxtui.dialogue.engine import LEAVING_SECONDS
from voxtui.records.device_offset import device_offset
from voxtui.records.metrics_log import metrics_log
from voxtui.settings.schema import Config
from voxtui.ui.app import VoxtuiApp
from voxtui.ui.menu import Parts
from voxtui.ui.terminal.restore import terminal_restored
from voxtui.wiring import (
    VOXTRAL,
    build_brain,
    build_microphone,
    build_speaker,
    build_voice,
    clip_speaker,
    devices_engine,
    reload_parts,
    sample_clips,
)


def run(config: Config) -> int:
    """Show the screen until the user quits, and return the exit code."""
    parts = Parts(
        microphone=lambda config: build_microphone(config.audio.input),
        speaker=lambda config: build_speaker(config.audio.output),
        brain=partial(build_brain, may_download=frozenset({VOXTRAL})),
        voice=build_voice,
        anew=reload_parts,
        devices=list_devices,
    )
    with (
        native_stderr_in(native_log()),
        terminal_restored(),
        metrics_log(config.metrics.enabled) as log,
    ):
        app = VoxtuiApp(
            lambda emit: devices_engine(config, log.tee(emit)),
            config,
            sample_clips(),
            clip_speaker(config),
            parts,
            device_offset=device_offset,
        )
        try:
            app.run()
        finally:
            app.engine.close(LEAVING_SECONDS)
    return app.return_code or 0
