"""Ordered ways to get a brain or a voice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, final

from voxtui.errors import ModelError


class Closable(Protocol):
    def close(self) -> None: ...


P = TypeVar("P", bound=Closable)


@final
@dataclass(frozen=True, slots=True)
class Fallbacks(Generic[P]):
    """Makers of a brain or a voice, best first. Each raises ModelError if it cannot run here."""

    makers: tuple[Callable[[], P], ...]
    first_only: bool = False
    """whether a failed first maker is final, because the user named it; the others then serve only
    after the loss of what it made"""

    def make(self) -> P:
        """Make the first one that can be made, without loading it. Raises ModelError."""
        return self.load(lambda part: None).part

    def load(self, warm_up: Callable[[P], None]) -> LoadedComponent[P]:
        """Make and warm up the first one for which both succeed.

        Closes each one that was made but could not be warmed up. Raises the last ModelError.
        """
        passed_over: ModelError | None = None
        made = False
        for number, maker in enumerate(self.makers):
            part: P | None = None
            try:
                part = maker()
                warm_up(part)
            except BaseException as error:
                if part is not None:
                    part.close()
                if not isinstance(error, ModelError) or self.first_only:
                    raise
                passed_over, made = error, part is not None
            else:
                return LoadedComponent(part, number, passed_over, made)
        raise passed_over or ModelError("There is no model to load.")


@dataclass(frozen=True, slots=True)
class LoadedComponent(Generic[P]):
    part: P
    number: int
    passed_over: ModelError | None
    """the error of the previous maker, if one failed"""
    was_made: bool
    """whether the previous maker succeeded, and only the warm-up failed"""


def fallbacks_of(part: P | Fallbacks[P]) -> Fallbacks[P]:
    return part if isinstance(part, Fallbacks) else Fallbacks((lambda: part,))
