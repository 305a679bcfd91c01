"""A paste is folded, keeps its lines, says what it costs before Enter, and never freezes."""

import threading
import time

import psutil
import pytest

from tests.ui.conftest import screen
from tests.ui.pseudo_terminal import AppInTerminal
from voxtui.dialogue.data import Token
from voxtui.dialogue.events import PrefillProgress, State, StateChanged
from voxtui.dialogue.history.attachments import Attachment, estimated_tokens
from voxtui.dialogue.protocols import PastTurn
from voxtui.settings.schema import Config, InputConfig
from voxtui.ui.driver.keyboard import Paste
from voxtui.ui.talk.pasted import NAME, PastedView

LOG = "\n".join(f"line {n} of a log" for n in range(1, 31))
TOKENS = estimated_tokens(LOG)
ROOMY = Config(input=InputConfig(max_tokens=1000))


def paste(text: str) -> Paste:
    return Paste(text, len(text))


async def pasted(s, text=LOG):
    s.app.post_message(paste(text))
    await s.settle()


async def test_a_long_paste_is_folded_and_goes_with_its_lines_before_the_words():
    async with screen(config=ROOMY) as s:
        await pasted(s, LOG.replace("\n", "\r"))
        assert "[pasted 30 lines]" in s.line("READY")
        assert f"{TOKENS} of 1,000 tokens · Enter sends" in s.text
        assert s.app.bar.field.value == ""
        await s.send("what fails?")
        assert s.engine.calls[-2:] == [("give", Attachment(NAME, LOG)), ("say", "what fails?")]
        assert "[pasted" not in s.text


async def test_a_long_paste_can_be_asked_about_by_voice():
    async with screen(config=ROOMY) as s:
        await pasted(s)
        await s.press("space")
        assert s.commands == ["give", "talk"]
        assert "[pasted" not in s.text


async def test_a_blank_paste_is_nothing():
    async with screen(config=ROOMY) as s:
        await pasted(s, "    \n" * 6)
        assert "[pasted" not in s.text
        await s.press("space")
        assert s.commands == ["talk"]


async def test_enter_alone_has_a_paste_read_ahead_and_asks_what_to_know():
    async with screen(config=ROOMY) as s:
        await pasted(s)
        await s.press("escape", "enter")
        assert s.commands == ["give"]
        assert "30 lines pasted" in s.text and "Vox  What would you like to know?" in s.text
        assert "[pasted" not in s.text and "Backspace" not in s.text


async def test_backspace_at_the_beginning_removes_the_newest_paste():
    async with screen(config=ROOMY) as s:
        await pasted(s)
        await pasted(s, "1\n2\n3\n4")
        assert "[pasted 34 lines]" in s.text
        await s.type("a")
        await s.press("backspace")
        assert "[pasted 34 lines]" in s.text and s.app.bar.field.value == ""
        await s.press("backspace")
        assert "[pasted 30 lines]" in s.text and f"{TOKENS} of 1,000" in s.text
        await s.press("backspace", "backspace")
        assert "[pasted" not in s.text and "Backspace" not in s.text
        await s.send("hello")
        assert s.commands == ["say"]


@pytest.mark.parametrize("opens", ["tab", "click", "click after Esc"])
async def test_a_paste_opens_and_closes(opens):
    async with screen(config=ROOMY) as s:
        await pasted(s)
        if opens == "click after Esc":
            await s.press("escape")
        if opens == "tab":
            await s.press("tab")
        else:
            await s.pilot.click("#pasted")
        await s.settle()
        assert isinstance(s.app.screen, PastedView) and "line 1 of a log" in s.text
        await s.press("escape")
        assert "[pasted 30 lines]" in s.text


async def test_how_long_reading_lasts_is_said_once_it_is_known():
    async with screen(config=ROOMY) as s:
        s.engine.report(PrefillProgress(100, 500, 8.0), PrefillProgress(500, 500, 0.0))
        await s.settle()
        await pasted(s)
        assert f"{TOKENS} of 1,000 tokens, {TOKENS / 50:.0f} s to read · Enter" in s.text


async def test_a_paste_that_does_not_fit_is_refused_with_what_to_do():
    async with screen(config=ROOMY) as s:
        text = "word\n" * 2000
        await pasted(s, text)
        assert s.toasts == [
            "Not pasted: 10,000 characters are at least 2,500 tokens, "
            "and the most is 1,000. Paste a part of it, or raise input.max_tokens."
        ]
        assert "[pasted" not in s.text


async def test_earlier_texts_of_the_conversation_count():
    async with screen(config=ROOMY) as s:
        s.engine.past = (PastTurn("x" * 3600, None, (Token("Read."),), attached=True),)
        await pasted(s)
        assert "Not pasted" in s.text and "the most is 1,000, of which 900 are taken." in s.text


async def test_a_short_paste_is_one_line_in_the_field():
    async with screen() as s:
        await pasted(s, "one\r\ntwo\x1b[2J\nthree\n")
        assert s.app.bar.field.value == "one two[2J three"


async def test_a_command_leaves_a_paste_where_it_is():
    async with screen(config=ROOMY) as s:
        await pasted(s)
        await s.send("/mute")
        assert s.commands == ["mute"] and "[pasted 30 lines]" in s.text


async def test_a_paste_while_the_models_load_waits_with_the_words():
    async with screen(loaded=False) as s:
        await pasted(s, "1\n2\n3\n4")
        await s.send("add them")
        assert s.commands == ["give"]
        s.engine.load("a microphone")
        s.engine.report(StateChanged(State.READY))
        await s.settle()
        assert s.commands == ["give", "say"]


@pytest.mark.slow
@pytest.mark.parametrize("line", ["0123456789 abc def\n", "no line ends here, "])
def test_keys_are_obeyed_while_and_after_5_mb_are_pasted(tmp_path, line):
    with AppInTerminal(tmp_path / "calls") as terminal:
        terminal.until(lambda: "releases" in terminal.told)
        memory = psutil.Process(terminal.pid).memory_info
        before = memory().rss
        text = line * (5_000_000 // len(line))
        writer = threading.Thread(
            target=terminal.send, args=("\x1b[200~", text, "\x1b[201~"), daemon=True
        )
        writer.start()
        writer.join()

        def delay_of(letter: str) -> float:
            seen = len(terminal.output)
            typed = terminal.send(letter)
            terminal.until(lambda: letter.encode() in terminal.output[seen:])
            return time.monotonic() - typed

        delays = [delay_of(letter) for letter in "xzwbd"]
        terminal.until(lambda: b"Not pasted" in terminal.output)
        assert memory().rss - before < 100e6
        assert "say" not in terminal.told
        assert max(delays) < 0.3, delays  # 0.1 s on a quiet machine
