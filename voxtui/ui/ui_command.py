"""`voxtui`: open the screen."""

from __future__ import annotations

from collections.abc import Sequence

from voxtui.commands.dictation.lent_recogniser import lent, settings_of
from voxtui.dialogue.engine import LEAVING_SECONDS
from voxtui.dialogue.history.attachments import Attachment
from voxtui.errors import RestartNeeded
from voxtui.settings.schema import Config
from voxtui.storage.metrics_files import metrics_writer
from voxtui.terminal.native_stderr import native_log, native_stderr_in
from voxtui.ui.app import VoxtuiApp
from voxtui.ui.driver.restore import terminal_restored
from voxtui.wiring import LocalFactories, devices_engine, sample_clips


def run(
    config: Config, attachments: Sequence[Attachment] = (), continues: bool = False, words: str = ""
) -> int:
    """Talk, with `attachments`, until the user quits. Return the exit code.

    `continues` resumes the newest stored conversation. `words` are the first ones of the user.
    """
    with (
        native_stderr_in(native_log()),
        terminal_restored(),
        metrics_writer(config.metrics.enabled) as log,
    ):
        app = VoxtuiApp(
            lambda emit: devices_engine(config, log.tee(emit), config.ui.captions),
            config,
            sample_clips(),
            LocalFactories(),
        )
        app.continues, app.attachments, app.words = continues, attachments, words
        engine = app.session.engine
        app.lending = lent(lambda: engine.brain, lambda: settings_of(app.session.config))
        try:
            app.run()
        finally:
            app.session.close(LEAVING_SECONDS)
        if isinstance(app.session.failed, RestartNeeded):
            raise app.session.failed
        if app.out_of_memory is not None:
            raise app.out_of_memory
    return app.return_code or 0
