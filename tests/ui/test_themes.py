"""Text can be read in every theme, and the theme suits the terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator

import pytest
from rich.color import Color as RichColor
from rich.color import ColorSystem
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from textual.color import Color
from textual.geometry import Region

from tests.ui.conftest import screen
from tests.ui.states import STATES, Clock, brought_about, frozen, make_app, turn
from voxtui.settings.schema import Config, UiConfig
from voxtui.settings.sources import options_of
from voxtui.ui.app import VoxtuiApp
from voxtui.ui.themes import (
    ANSI_DARK,
    ANSI_LIGHT,
    AUTO,
    CONTRAST,
    DARK,
    GROUNDS,
    INKS,
    LIGHT,
    ON_CURSOR,
    THEMES,
    contrast,
    legible,
    theme_names,
    theme_of_terminal,
)

XTERM = [
    (0, 0, 0), (205, 0, 0), (0, 205, 0), (205, 205, 0),
    (0, 0, 238), (205, 0, 205), (0, 205, 205), (229, 229, 229),
], [
    (127, 127, 127), (255, 0, 0), (0, 255, 0), (255, 255, 0),
    (92, 92, 255), (255, 0, 255), (0, 255, 255), (255, 255, 255),
]  # fmt: skip
LINUX = [
    (0, 0, 0), (170, 0, 0), (0, 170, 0), (170, 85, 0),
    (0, 0, 170), (170, 0, 170), (0, 170, 170), (170, 170, 170),
], [
    (85, 85, 85), (255, 85, 85), (85, 255, 85), (255, 255, 85),
    (85, 85, 255), (255, 85, 255), (85, 255, 255), (255, 255, 255),
]  # fmt: skip
BLACK, WHITE = (0, 0, 0), (255, 255, 255)
PALETTES = {
    ANSI_DARK: [TerminalTheme(BLACK, (229, 229, 229), *XTERM),
                TerminalTheme(BLACK, (170, 170, 170), *LINUX)],
    ANSI_LIGHT: [TerminalTheme(WHITE, BLACK, *XTERM), TerminalTheme(WHITE, BLACK, *LINUX)],
}  # fmt: skip


def offered() -> list[str]:
    return [name for name in theme_names() if name != AUTO]


def test_the_configuration_knows_all_themes():
    assert sorted(theme_names()) == options_of("ui.theme")


def inks(app: VoxtuiApp) -> Iterator[tuple[str, Style]]:
    """Yield each piece of text on the screen with its style; bars and borders are not text.

    Of a box over the screen only the box, because the screen behind it is veiled.
    """
    box = app.screen.region
    if len(app.screen_stack) > 1:
        box = max(
            (child.region for child in app.screen.query("Vertical, VerticalScroll")), key=area
        )
    for strip in app.screen._compositor.render_strips()[box.y : box.bottom]:
        for text, style, control in strip.crop(box.x, box.right):
            letters = "".join(c for c in text if not ("\u2500" <= c <= "\u259f" or c.isspace()))
            if style and not control and letters:
                assert all(unicodedata.category(c) != "Co" for c in letters)
                yield letters, style


def area(region: Region) -> int:
    return region.area


def worst(app: VoxtuiApp, palette: TerminalTheme, system: ColorSystem) -> tuple[float, str]:
    """Return the lowest contrast on the screen in a terminal of `system`, and its text."""
    found = [(contrast(*colours(style, palette, system)), text) for text, style in inks(app)]
    assert found
    return min(found)


def colours(style: Style, palette: TerminalTheme, system: ColorSystem) -> tuple[Color, Color]:
    def shown(color: RichColor | None, foreground: bool) -> Color:
        color = (color or RichColor.default()).downgrade(system)
        return Color(*color.get_truecolor(palette, foreground))

    ink, ground = shown(style.color, True), shown(style.bgcolor, False)
    if style.dim:  # as Textual dims where it may choose the colour
        ink = ground.blend(ink, 0.66)
    return (ground, ink) if style.reverse else (ink, ground)


async def worst_of_state(state: str, themes: Iterable[str], system=ColorSystem.TRUECOLOR):
    """Return the lowest contrast in a state, its text, and the theme."""
    found = []
    act, config = STATES[state]
    clock, app = Clock(), make_app(config)
    with frozen(clock):
        async with app.run_test(size=(120, 40), notifications=True) as pilot:
            await brought_about(pilot, act, clock)
            for theme in themes:
                app.theme = theme
                await pilot.pause()  # the style sheets are applied after the change
                await pilot.pause()
                for palette in PALETTES.get(theme, PALETTES[ANSI_DARK][:1]):
                    found.append((*worst(app, palette, system), theme))
    return min(found)


@pytest.mark.parametrize("name", offered())
def test_every_text_of_every_theme_stands_out_from_every_ground(name):
    app = make_app()
    theme = app.available_themes[name]
    if theme.ansi:
        return  # has only the terminal's ground; the next test looks at it
    found = legible({**theme.to_color_system().generate(), **theme.variables})
    for ground in GROUNDS:
        for ink in INKS:
            assert contrast(Color.parse(found[ink]), Color.parse(found[ground])) >= CONTRAST
    ink, ground = (Color.parse(found[variable]) for variable in ON_CURSOR)
    assert contrast(ink, ground) >= CONTRAST


@pytest.mark.slow
@pytest.mark.parametrize("state", ["talked_over", "failed_start", "keys"])
async def test_text_on_the_screen_can_be_read_in_our_themes(state):
    worst_contrast, *where = await worst_of_state(state, [theme.name for theme in THEMES])
    assert worst_contrast >= CONTRAST, where


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES)
async def test_text_in_every_state_can_be_read_in_every_theme(state):
    worst_contrast, *where = await worst_of_state(state, offered())
    assert worst_contrast >= CONTRAST, where


@pytest.mark.slow
async def test_text_can_be_read_with_256_colours():
    worst_contrast, *where = await worst_of_state("speaking", (DARK, LIGHT), ColorSystem.EIGHT_BIT)
    assert worst_contrast >= CONTRAST, where


@pytest.mark.parametrize(
    ("system", "colorfgbg", "theme"),
    [
        ("truecolor", None, DARK), ("256", "15;0", DARK), ("256", "0;15", LIGHT),
        ("truecolor", "0;default;15", LIGHT), ("truecolor", "nonsense", DARK),
        ("standard", None, ANSI_DARK), (None, "0;7", ANSI_LIGHT),
    ],
)  # fmt: skip
def test_the_terminal_chooses_the_theme(monkeypatch, system, colorfgbg, theme):
    monkeypatch.delenv("COLORFGBG", raising=False)
    if colorfgbg is not None:
        monkeypatch.setenv("COLORFGBG", colorfgbg)
    assert theme_of_terminal(system) == theme


@pytest.mark.parametrize(("chosen", "theme"), [(LIGHT, LIGHT), ("auto", DARK), ("nosuch", DARK)])
async def test_the_first_frame_has_its_theme(monkeypatch, chosen, theme):
    """A theme that came later would style everything twice, which takes a fifth of the start."""
    refreshed = []
    monkeypatch.setattr(VoxtuiApp, "refresh_css", lambda *_, **__: refreshed.append(1))
    async with screen(config=Config(ui=UiConfig(theme=chosen))) as s:
        assert (s.app.theme, refreshed) == (theme, [])
        ground = s.app.available_themes[theme].background
        assert s.app.theme_variables["background"].lower() == ground
        assert ("-dark-mode" in s.app.classes) == s.app.available_themes[theme].dark


@pytest.mark.slow
async def test_no_color_writes_no_colour(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    async with screen((120, 40)) as s:
        turn(s, "Is it red?", "It has no colour.")
        await s.settle()
        assert "It has no colour." in s.text
        for _, style in inks(s.app):
            assert all(color is None or color.is_default for color in (style.color, style.bgcolor))


@pytest.mark.slow
async def test_names_take_the_colours_of_a_new_theme_at_once():
    config = Config(ui=UiConfig(theme=DARK))
    async with screen(config=config) as s:
        turn(s, "Hello", "Good day.")
        await s.settle()
        s.app.theme = LIGHT
        await s.settle()
        wanted = Color.parse(s.app.theme_variables["text-primary"])
        (name,) = (style for text, style in inks(s.app) if text == "You")
        assert Color.from_rich_color(name.color) == wanted


async def test_without_motion_nothing_blinks_or_glides():
    async with screen(config=Config(ui=UiConfig(motion=False))) as s:
        await s.pilot.press("slash")
        assert s.app.animation_level == "none"
        assert not s.app.bar.field.cursor_blink
