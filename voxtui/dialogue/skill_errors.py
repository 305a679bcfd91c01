"""Log the errors of skills and tools, which never end the program."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb

_log = logging.getLogger(__name__)


@contextmanager
def skill_errors_logged() -> Generator[None, None, bool | None]:
    """Log an exception and suppress it, because a conversation needs no skills."""
    try:
        yield
    except Exception as error:  # noqa: BLE001
        log_failure(error)


def log_failure(error: Exception) -> None:
    """Log one line: the type of `error` and its place. Its message may quote the user's words."""
    place = extract_tb(error.__traceback__)[-1]
    kind = type(error).__name__
    _log.error("A skill failed with %s at %s:%s.", kind, Path(place.filename).name, place.lineno)
