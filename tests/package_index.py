"""A package index and a hub on the loopback interface, with the failures that a test sets."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import threading
import zipfile
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from tests.deadline import SECONDS


def wheel(package: str, version: str, files: dict[str, bytes]) -> bytes:
    """Return a wheel that holds `files`."""
    name = package.replace("-", "_")
    files = files | {
        f"{name}-{version}.dist-info/METADATA": (
            f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n".encode()
        ),
        f"{name}-{version}.dist-info/WHEEL": (
            b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
    }
    record = "".join(f"{path},{_record_hash(content)}\n" for path, content in files.items())
    record += f"{name}-{version}.dist-info/RECORD,,\n"
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for path, content in files.items():
            file.writestr(path, content)
        file.writestr(f"{name}-{version}.dist-info/RECORD", record)
    return archive.getvalue()


def _record_hash(content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"sha256={digest},{len(content)}"


@dataclass
class PackageIndex:
    """An HTTP server of `files`. Every field may be changed while it runs."""

    files: dict[str, bytes] = field(default_factory=dict)
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    """(method, path, Range header) in order of arrival"""
    breaks_after: dict[str, int] = field(default_factory=dict)
    """path -> bytes of the body after which the connection closes"""
    holds: dict[str, threading.Event] = field(default_factory=dict)
    """path -> event to wait for before the response"""
    asked: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """released at each request for a path in `holds`"""
    moved: dict[str, str] = field(default_factory=dict)
    """path -> target of a redirect"""
    refuses: dict[str, tuple[int, str]] = field(default_factory=dict)
    """path -> status and X-Error-Code"""
    tokens: list[tuple[str, str]] = field(default_factory=list)
    """(path, Authorization header) of the requests with that header"""
    ranges: bool = True

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Requests, self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for hold in self.holds.values():
            hold.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def add(
        self, package: str, version: str, files: dict[str, bytes], damaged: bool = False
    ) -> str:
        """Add a package and return the path of its wheel."""
        content = wheel(package, version, files)
        path = f"/files/{package.replace('-', '_')}-{version}-py3-none-any.whl"
        digest = hashlib.sha256(content).hexdigest()
        page = f'<!DOCTYPE html><a href="{path}#sha256={digest}">{path.rsplit("/", 1)[1]}</a>'
        self.files[f"/simple/{package}/"] = page.encode()
        self.files[path] = wheel(package, version, {"other.txt": b"?"}) if damaged else content
        return path

    def paths(self, start: str) -> list[str]:
        return [path for _, path, _ in self.requests if path.startswith(start)]


class _Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, index: PackageIndex, *args: object) -> None:
        self._index = index
        super().__init__(*args)

    def log_message(self, *_: object) -> None:
        pass

    def end_headers(self) -> None:
        # A client that is not told would send its next request into a closed connection.
        self.send_header("Connection", "close")
        super().end_headers()

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        index = self._index
        wanted = self.headers.get("Range", "")
        index.requests.append((self.command, self.path, wanted))
        if token := self.headers.get("Authorization"):
            index.tokens.append((self.path, token))
        if hold := index.holds.get(self.path):
            index.asked.release()
            hold.wait(SECONDS)
        if there := index.moved.get(self.path):
            self.send_response(302)
            self.send_header("Location", there)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if refusal := index.refuses.get(self.path):
            self.send_response(refusal[0])
            self.send_header("X-Error-Code", refusal[1])
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        content = index.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").split("-")[0] or 0) if index.ranges else 0
        body = content[start:]
        self.send_response(206 if wanted and index.ranges else 200)
        self.send_header("Content-Type", "text/html" if self.path.endswith("/") else "bytes")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            # A test may have killed the client.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.wfile.write(body[: index.breaks_after.get(self.path, len(body))])
