"""The keys of the screen. No key of a command types a character, so typing starts no command."""

from __future__ import annotations

from collections.abc import Sequence

from textual.binding import Binding

from voxtui.settings.schema import UiConfig

ESCAPE = {"drop": "Drop", "stop": "Stop", "leave": "Leave", "live": "Newest"}
"""Actions of Esc in the order in which they are tried, and their names in the footer."""


SELECT = "screen.step(-1)"

ON_TURN = (
    "correct", "again", "copy", "speak", "delete", "escape('stop')", "escape('leave')",
    "escape('live')", SELECT,
)  # fmt: skip
"""Actions that the footer names while a turn is selected."""


def shown(key: str) -> str:
    return "+".join(part.capitalize() for part in key.split("+"))


def key_display(key: str) -> str:
    return f"^{key[-1]}" if key.startswith("ctrl+") else shown(key)


def bindings(ui: UiConfig) -> Sequence[Binding]:
    """Return every key binding. Those with a tooltip are listed by the help.

    The actions are those of the conversation's screen, or of the app. A command also works while
    the user writes, so its key has priority over the text field.
    """
    keys = ui.keys

    def command(action: str, key: str, label: str, about: str, show: bool = True) -> Binding:
        display = key_display(key)
        return Binding(
            key, action, label, show=show, key_display=display, priority=True, tooltip=about
        )

    return [
        Binding(ui.talk_key, "talk('begin')", "Talk", key_display=shown(ui.talk_key),
                tooltip="talk: hold it, or tap before and after; cuts an answer off"),
        Binding(ui.talk_key, "talk('end')", "Send", key_display=shown(ui.talk_key)),
        Binding("slash", "type", "Commands", key_display="/",
                tooltip="commands, completed as you write; any other text is sent with Enter"),
        *(Binding("escape", f"escape('{what}')", name, key_display="Esc", priority=True,
                  tooltip="drop what you say; then stop the answer; then leave the text, which Up "
                          "brings back" if what == "stop" else "")
          for what, name in ESCAPE.items()),
        command("new", keys.new, "New", "start a new conversation; /undo brings the old one back"),
        command("mute", keys.mute, "Mute", "turn the voice off or on; the text goes on"),
        command("again", keys.again, "Again", "answer your last words, or those of the selected "
                "turn, once more; after a failed start: try again", show=False),
        command("edit", keys.edit, "Edit", "correct what was heard in the last or the selected "
                "turn; Enter has it answered in place of that", show=False),
        command("copy", keys.copy, "Copy", "copy the selected text, the selected answer, or the "
                "last one", show=False),
        command("speak", keys.speak, "Speak", "read the selected answer aloud", show=False),
        Binding("delete", "delete", "Delete", key_display="Del", show=False,
                tooltip="remove the selected turn from the conversation; /undo brings it back"),
        command("save", keys.save, "Save", "save the session: Markdown, JSON and WAV files",
                show=False),
        command("app.panel", keys.panel, "Panel",
                "show the times as one line, as a summary or as a laboratory", show=False),
        command("app.help", keys.help, "Keys", "this list"),
        command("app.command_palette", keys.menu, "Menu",
                "choose microphone, speaker, brain, voice, preset, theme"),
        command("app.quit", keys.quit, "Quit", "quit"),
        Binding("enter", "mend", show=False),  # the banner names it where it does something
        Binding("enter", "correct", "Edit", show=False, key_display="Enter"),
        Binding("pageup", "page_up", show=False),
        Binding("pagedown", "page_down", show=False),
        Binding("ctrl+c", "app.help_quit", show=False, system=True),
        Binding("ctrl+z", "app.suspend_process", show=False, system=True),
    ]  # fmt: skip
