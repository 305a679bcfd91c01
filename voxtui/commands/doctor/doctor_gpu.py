"""`voxtui doctor gpu`: try Voxtral's fast path again, and show the times of a token."""

from __future__ import annotations

from contextlib import closing

import click

from voxtui.brains.voxtral.brain import VoxtralBrain
from voxtui.brains.voxtral.cuda_errors import marker
from voxtui.errors import ModelError, RestartNeeded
from voxtui.models.cuda import check_voxtral
from voxtui.models.installed import voxtral_directory
from voxtui.settings.schema import Config
from voxtui.settings.sources import with_value


def run(config: Config) -> bool:
    """Load Voxtral and try the fast path, whatever the last result. Return True if it works."""
    check_voxtral()
    directory = voxtral_directory(config.brain.voxtral.model)
    marker().unlink(missing_ok=True)
    config = with_value(config, "brain.voxtral.fast", True)
    with closing(VoxtralBrain(config, directory, click.echo)) as brain:
        try:
            brain.warm_up(lambda step, fraction: None)
        except RestartNeeded as error:
            hint = "The next start leaves the fast path out."
            raise ModelError(error.message, hint) from error
        click.echo(brain.description)
        if (found := brain.fast_path) is None:
            return False
        click.echo(f"plain path: {found.plain_ms:.2f} ms a token")
        click.echo(f"fast path:  {found.fast_ms:.2f} ms a token, the same tokens")
        return True
