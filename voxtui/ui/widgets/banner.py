"""The present problem, above the conversation, with the key that solves it."""

from __future__ import annotations

from textual.widgets import Static


class Banner(Static):
    """Shows one problem at a time. The newest replaces the one before."""

    def __init__(self) -> None:
        super().__init__(id="banner", markup=False)
        self.action = ""
        """the action that solves the problem; empty for none"""

    def show(self, problem: str, remedy: str = "", action: str = "", error: bool = True) -> None:
        """Show `problem`; Enter runs `action`, which `remedy` names.

        If not `error`, it asks for attention although everything works.
        """
        self.action = action
        key = f"  Enter: {remedy}" if remedy else ""
        self.update(f"{'✗' if error else '!'} {problem}{key}")
        self.set_class(not error, "attention")
        self.add_class("shown")

    def withdraw(self) -> None:
        self.action = ""
        self.remove_class("shown")
