"""The themes: our own and Textual's, with legible contrast."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from rich.console import Console
from textual.color import Color
from textual.theme import BUILTIN_THEMES, Theme

DARK, LIGHT = "voxtui-dark", "voxtui-light"
ANSI_DARK, ANSI_LIGHT = "ansi-dark", "ansi-light"

AUTO = "auto"
"""The value of ui.theme that leaves the choice to the terminal."""

CONTRAST = 4.5
"""Minimum contrast: WCAG 2, level AA, for text of any size."""

GROUNDS = ("background", "surface", "panel")

INKS = (
    "foreground", "text", "text-muted", "text-disabled", "text-primary", "text-secondary",
    "text-success", "text-warning", "text-error", "text-accent",
    "footer-foreground", "footer-key-foreground", "footer-description-foreground",
    "block-cursor-blurred-foreground", "input-selection-foreground", "markdown-h6-color",
)  # fmt: skip
"""Variables of the colours of text on GROUNDS."""

ON_CURSOR = "block-cursor-foreground", "block-cursor-background"
"""Variables of text with a ground of its own: the chosen line of a list."""


_OF_THE_TERMINAL = (
    "text-muted", "text-disabled", "foreground-muted", "border-blurred", "input-cursor-foreground",
    "scrollbar", "scrollbar-hover", "scrollbar-background", "scrollbar-background-hover",
    "scrollbar-background-active", "ansi-background", "ansi-foreground",
)  # fmt: skip
_ACCENTED = (
    "border", "block-cursor-background", "footer-key-foreground", "input-selection-background",
    "screen-selection-background", "scrollbar-active",
)  # fmt: skip
"""Variables with the accent in a theme of the terminal's own colours."""


def _own(name: str, dark: bool, inks: Mapping[str, str], grounds: Sequence[str]) -> Theme:
    """Make a theme with one accent; amber asks for attention, and red marks only errors."""
    accent, muted = inks["accent"], inks["muted"]
    background, surface, panel = grounds
    return Theme(
        name=name,
        dark=dark,
        primary=accent,
        secondary=muted,
        accent=accent,
        success=accent,
        warning=inks["attention"],
        error=inks["error"],
        foreground=inks["text"],
        background=background,
        surface=surface,
        panel=panel,
        variables={
            **dict.fromkeys(("text-muted", "text-disabled", "text-secondary"), muted),
            **dict.fromkeys(("text-primary", "text-success", "text-accent"), accent),
            "text": inks["text"],
            "text-warning": inks["attention"],
            "text-error": inks["error"],
            "footer-background": background,
            "footer-description-foreground": muted,
            "border-blurred": panel,
            "block-cursor-foreground": background,
            "block-cursor-blurred-background": panel,
        },
    )


def _ansi(name: str, dark: bool, accent: str, attention: str, error: str) -> Theme:
    """Make a theme of the terminal's own colours, for 16 colours and for its own palette.

    Text stands on the terminal's ground. Muted text has the terminal's own colour, because none of
    the other 15 is legible on every palette.
    """
    default = "ansi_default"
    cursor = "ansi_black" if dark else "ansi_bright_white"
    return Theme(
        name=name,
        dark=dark,
        ansi=True,
        primary=accent,
        secondary=default,
        accent=accent,
        success=accent,
        warning=attention,
        error=error,
        foreground=default,
        background=default,
        surface=default,
        panel=default,
        boost=default,
        variables={
            **dict.fromkeys(_OF_THE_TERMINAL, default),
            **dict.fromkeys(_ACCENTED, accent),
            "block-cursor-foreground": cursor,
            "input-selection-foreground": cursor,
            "screen-selection-foreground": cursor,
        },
    )


THEMES = (
    _own(
        DARK, True,
        {"text": "#e3e8ee", "muted": "#97a3b2", "accent": "#5ccabf",
         "attention": "#f0b45b", "error": "#ff8078"},
        ("#0e1217", "#151a21", "#1d242d"),
    ),
    _own(
        LIGHT, False,
        {"text": "#1c2228", "muted": "#56606b", "accent": "#08686a",
         "attention": "#875000", "error": "#b0241c"},
        ("#fcfbf8", "#f4f2ed", "#ebe8e1"),
    ),
    _ansi(ANSI_DARK, True, "ansi_bright_cyan", "ansi_bright_yellow", "ansi_bright_red"),
    _ansi(ANSI_LIGHT, False, "ansi_blue", "ansi_magenta", "ansi_red"),
)  # fmt: skip
"""Our own themes. The last two replace Textual's, whose muted text is as its ground."""

AVAILABLE = {**BUILTIN_THEMES, **{theme.name: theme for theme in THEMES}}


def theme_named(name: str) -> str:
    if name in AVAILABLE:
        return name
    return theme_of_terminal(Console(force_terminal=True).color_system)


def theme_of_terminal(color_system: str | None) -> str:
    """Return the theme for rich's `color_system`. COLORFGBG shows a light ground."""
    light = os.environ.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")
    if color_system in (None, "standard"):
        return ANSI_LIGHT if light else ANSI_DARK
    return LIGHT if light else DARK


def theme_names() -> list[str]:
    own = [theme.name for theme in THEMES]
    return [AUTO, *own, *sorted(set(AVAILABLE) - set(own))]


def contrast(ink: Color, ground: Color) -> float:
    """Return the contrast of two opaque colours as WCAG 2 defines it: 1 to 21."""
    dark, light = sorted((_luminance(ink), _luminance(ground)))
    return (light + 0.05) / (dark + 0.05)


def legible(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a theme with a text contrast of at least CONTRAST.

    Other people's themes have greys and accents below it. A colour that is too close to its ground
    moves towards black or white, as little as necessary. A theme of ANSI colours is returned
    unchanged, because only the terminal knows its colours.
    """
    found = dict(variables)
    if found["background"].startswith("ansi"):
        return found
    found["footer-background"] = found["panel"]  # solarized-light has another ground there
    grounds = [Color.parse(found[name]) for name in GROUNDS]
    for name in INKS:
        found[name] = _apart(_color(found[name], grounds[0]), grounds).hex
    ink, ground = ON_CURSOR
    on = Color.parse(found[ground])
    found[ink] = _apart(_color(found[ink], on), [on]).hex
    return found


def _luminance(color: Color) -> float:
    def linear(part: float) -> float:
        return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4

    red, green, blue = map(linear, color.normalized)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _color(value: str, ground: Color) -> Color:
    """Return the opaque colour of a variable on `ground`; `auto 60%` is black or white in part."""
    name, _, part = value.partition(" ")
    if name == "auto":
        return ground + ground.get_contrast_text(float(part.rstrip("%") or 100) / 100)
    return ground + Color.parse(value)


def _apart(ink: Color, grounds: Sequence[Color]) -> Color:
    goal = max(
        (Color(0, 0, 0), Color(255, 255, 255)),
        key=lambda end: min(contrast(end, ground) for ground in grounds),
    )
    found, part = ink, 0.0
    while part < 1 and min(contrast(found, ground) for ground in grounds) < CONTRAST:
        part += 0.02
        found = ink.blend(goal, min(part, 1.0))
    return found
