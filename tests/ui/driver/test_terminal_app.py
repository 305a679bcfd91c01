"""The app as its driver ends it."""

from voxtui.ui.driver.terminal_app import TerminalApp


async def test_an_app_that_a_bug_in_the_input_thread_ends_has_failed():
    app = TerminalApp()
    async with app.run_test():
        app.panic("a traceback")
    assert app.return_code == 1
