"""The clock of the tests of skills."""

import time

import pytest


@pytest.fixture
def berlin(monkeypatch):
    """Run the test in the time zone of Berlin."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
