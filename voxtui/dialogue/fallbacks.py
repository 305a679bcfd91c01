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
    """Makers of an unloaded part, best first. Each raises ModelError if it cannot run here."""

    makers: tuple[Callable[[], P], ...]
    first_only: bool = False
    """the user named the first loader: the others serve only after its part was lost"""

    def with_first_made(self) -> Fallbacks[P]:
        """Make the first part now, and return loaders that begin with it. Raises ModelError."""
        first = self.makers[0]()
        return Fallbacks((lambda: first, *self.makers[1:]), self.first_only)

    def make(self) -> P:
        """Make the first part that can be made, without loading it. Raises ModelError."""
        return self.load(lambda part: None).part

    def load(self, warm_up: Callable[[P], None]) -> LoadedComponent[P]:
        """Make and warm up the first part for which both succeed.

        Closes a part that was made but could not be warmed up. Raises the last ModelError.
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
    """the error of the previous loader"""
    was_made: bool
    """the previous loader made its part, but warming it up failed"""


def fallbacks_of(part: P | Fallbacks[P]) -> Fallbacks[P]:
    return part if isinstance(part, Fallbacks) else Fallbacks((lambda: part,))
