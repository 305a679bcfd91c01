import os

import pytest

from tests.models.tiny_model import TINY
from voxtui.models.catalogue import CHAT_MODELS


@pytest.fixture
def empty_store(request, tmp_path, monkeypatch):
    """Make the machine one without models, whose installers use one index and retry once."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if request.node.get_closest_marker("models"):
        return
    for name in os.environ:
        if name.startswith(("PIP_", "UV_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    monkeypatch.setitem(CHAT_MODELS, "tiny", TINY)
