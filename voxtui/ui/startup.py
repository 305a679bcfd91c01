"""The content of an empty screen: the welcome and the sample clips."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import OptionList, Static

from voxtui.settings.schema import Config
from voxtui.ui.conversation.paragraph import Paragraph
from voxtui.ui.keys import shown
from voxtui.ui.talk.talkkey import Mode

SUGGESTIONS = ("What time is it in Tokyo?", "Set a timer for five minutes.", "Why is the sky blue?")
"""Two examples that rules answer, and one for the model."""


def welcome(
    mode: Mode | None, config: Config, model: str, sends_to: str, samples: bool = False
) -> Sequence[Paragraph]:
    """Return the first screen: how to talk, what to try, and where words are sent.

    `mode` is None without a working microphone. `model` is the name of the answering model; the
    servers `sends_to` receive voice and words. With `samples`, a list of clips is below.
    """
    key = shown(config.ui.talk_key)
    match mode:
        case Mode.HOLD | Mode.MOUSE:
            talk = f"Hold {key}, speak, let go. Or just type."
        case Mode.TOGGLE:
            talk = f"Press {key}, speak, press it again. Or just type."
        case Mode.HANDS_FREE:
            name = config.vad.name
            begin = f'Say "{name}" and your question' if name else "Just speak"
            talk = f"{begin}; a pause ends it. Or type."
        case None:
            talk = "Type a question."
    where = "Nothing leaves this machine" + (f": {model} answers here." if model else ".")
    if sends_to:
        where = f"Your voice and words go to {sends_to}."
    storage = "Your words are stored only if you save them."
    if config.session.keep:
        storage = "Your words are kept in a file: /history."
    suggestions = Paragraph("vox", "Try", Content("\n".join(SUGGESTIONS)))
    return (
        Paragraph("head", "", Content(talk)),
        *(() if samples else (suggestions,)),
        Paragraph("head", "", Content(f"{where}\n{storage}"), muted=True),
    )


def not_loaded() -> Sequence[Paragraph]:
    return (Paragraph("head", "", Content("What you type is answered once a model is loaded.")),)


class Samples(Vertical):
    """A list of the sample clips, shown while no microphone is in use."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self._names = names

    def compose(self) -> ComposeResult:
        if self._names:
            yield Static("Sample questions, as if you spoke them:")
            options = (f"{n}  {name}" for n, name in enumerate(self._names, 1))
            yield OptionList(*options, markup=False, compact=True)

    def offer(self, offered: bool) -> None:
        self.set_class(offered and bool(self._names), "shown")

    async def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        await self.run_action(f"screen.clip({event.option_index + 1})")
