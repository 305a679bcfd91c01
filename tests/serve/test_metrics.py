"""Who has the whole answer finds it counted: the counters change before its last byte leaves."""

from __future__ import annotations

import asyncio

import httpx2
import pytest

from tests.fakes import BeepVoice, LoudIsSpeech, ScriptedBrain
from tests.serve.conftest import counted, spoken
from tests.serve.test_transcriptions import wav
from voxtui.serve.app import build_app
from voxtui.serve.shared_models import ModelSet, Pool
from voxtui.settings.schema import Config

CHAT = {"messages": [{"role": "user", "content": "Hello."}]}
SPEECH = {"input": "One two three. Four five six."}


async def ask(app, request: httpx2.Request, at_the_end) -> bytes:
    """Return the body of the answer. `at_the_end` is awaited before the last part is sent on."""
    body = b""
    asked = [{"type": "http.request", "body": request.read(), "more_body": False}]

    async def receive():
        if not asked:
            await asyncio.Event().wait()  # the client stays
        return asked.pop()

    async def send(message) -> None:
        nonlocal body
        if message["type"] == "http.response.body":
            body += message.get("body", b"")
            if not message.get("more_body", False):
                await at_the_end()

    headers = [(name.lower(), value) for name, value in request.headers.raw]
    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1",
        "method": request.method, "path": request.url.path, "raw_path": request.url.raw_path,
        "query_string": b"", "root_path": "", "headers": headers, "scheme": "http",
    }  # fmt: skip
    await app(scope, receive, send)
    return body


async def nothing() -> None: ...


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("endpoint", ["transcriptions", "chat", "speech"])
async def test_an_answer_is_counted_before_its_end_is_sent(endpoint, streamed):
    parts = ModelSet(counted, LoudIsSpeech(), BeepVoice(), ScriptedBrain())
    app, _ = build_app(Config(), Pool([parts]), None, frozenset())
    base = "http://localhost/v1"
    request = {
        "transcriptions": lambda: httpx2.Request(
            "POST", f"{base}/audio/transcriptions", files={"file": ("a.wav", wav(spoken(0.5)))},
            data={"stream": str(streamed).lower()},
        ),
        "chat": lambda: httpx2.Request(
            "POST", f"{base}/chat/completions", json={**CHAT, "stream": streamed}
        ),
        "speech": lambda: httpx2.Request(
            "POST", f"{base}/audio/speech",
            json={**SPEECH, "response_format": "pcm" if streamed else "wav"},
        ),
    }[endpoint]()  # fmt: skip
    shown = []

    async def look() -> None:
        text = await ask(app, httpx2.Request("GET", "http://localhost/metrics"), nothing)
        shown.append(text.decode())

    assert await ask(app, request, look)
    assert f'endpoint="{endpoint}",status="200"}} 1.0' in shown[0]
