"""A fake OpenAI-compatible server: each test sets its answers, correct and broken ones."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.deadline import SECONDS

CERTIFICATE = Path(__file__).parent / "data" / "localhost.pem"
"""Self-signed, for localhost; its key beside it."""

Answer = Callable[["Exchange"], object]


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    """names in lower case"""
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.body)


class Exchange(BaseHTTPRequestHandler):
    """One connection. An answer writes any bytes to it."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Any

    def handle(self) -> None:
        self.server.fake.connections += 1
        with suppress(ConnectionError):
            super().handle()

    def _do(self) -> None:
        length = int(self.headers.get("content-length", 0))
        fake: FakeServer = self.server.fake
        names = {name.lower(): value for name, value in self.headers.items()}
        fake.requests.append(Request(self.command, self.path, names, self.rfile.read(length)))
        path = self.path.partition("/v1/")[2]
        fake.answers[path](self)
        fake.answered.set()

    do_GET = do_POST = _do  # noqa: N815

    def log_message(self, *arguments: Any) -> None: ...

    # Parts of an answer.

    def whole(self, body: Any, status: int = 200, kind: str = "application/json", **head: str):
        text = body if isinstance(body, str | bytes) else json.dumps(body)
        data = text.encode() if isinstance(text, str) else text
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        for name, value in head.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def begin(self, kind: str = "text/event-stream", status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def chunk(self, data: bytes | str) -> None:
        data = data.encode() if isinstance(data, str) else data
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self) -> None:
        self.wfile.write(b"0\r\n\r\n")

    def tokens(self, *texts: str) -> None:
        for text in texts:
            self.chunk(event(text))

    def hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def until_hung_up(self, meanwhile: str | None = None) -> None:
        """Block until the client closes the connection; send `meanwhile` again and again."""
        self.connection.settimeout(0.02 if meanwhile else SECONDS)
        with suppress(ConnectionError):
            while True:
                try:
                    assert self.connection.recv(1) == b""
                    break
                except TimeoutError:
                    assert meanwhile
                    self.chunk(meanwhile)
        self.close_connection = True
        self.server.fake.hung_up.set()


def event(text: str | None = None, finish: str | None = None) -> str:
    """Return an event of a stream, in the format of vLLM."""
    delta = {} if text is None else {"content": text}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return f"data: {json.dumps({'object': 'chat.completion.chunk', 'choices': [choice]})}\n\n"


def says(*texts: str) -> Answer:
    """Return an answer that streams these tokens."""

    def answer(exchange: Exchange) -> None:
        exchange.begin()
        exchange.tokens("", *texts)
        exchange.chunk(event(finish="stop"))
        exchange.chunk("data: [DONE]\n\n")
        exchange.end()

    return answer


def sends(*chunks: bytes | str) -> Answer:
    """Return an answer that streams exactly these chunks."""

    def answer(exchange: Exchange) -> None:
        exchange.begin()
        for chunk in chunks:
            exchange.chunk(chunk)
        exchange.end()

    return answer


def returns(body: Any, status: int = 200, kind: str = "application/json", **head: str) -> Answer:
    return lambda exchange: exchange.whole(body, status, kind, **head)


class FakeServer:
    """The requests a server got, and the answers it gives."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[Request] = []
        self.connections = 0
        self.hung_up = threading.Event()
        self.answered = threading.Event()
        self.answers: dict[str, Answer] = {
            "models": returns({"data": [{"id": "a-model"}]}),
            "chat/completions": says("It", " is", " noon."),
            "audio/transcriptions": returns({"text": " what was said\n"}),
        }

    @property
    def host(self) -> str:
        return self.url.partition("://")[2].removesuffix("/v1")

    def chats(self) -> list[Request]:
        return [request for request in self.requests if request.path.endswith("/chat/completions")]


class _Server(ThreadingHTTPServer):
    block_on_close = True
    fake: FakeServer

    def handle_error(self, request: Any, client_address: Any) -> None: ...


@contextmanager
def serving(tls: bool = False) -> Iterator[FakeServer]:
    server = _Server(("127.0.0.1", 0), Exchange)
    server.daemon_threads = True
    scheme = "http"
    if tls:
        scheme, context = "https", ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE)
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    server.fake = FakeServer(f"{scheme}://127.0.0.1:{server.server_port}/v1")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), name="test server")
    thread.start()
    try:
        yield server.fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
