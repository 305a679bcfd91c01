from __future__ import annotations

import json
import socket

import pytest

from tests.deadline import SECONDS
from tests.serve.conftest import Server, serving

EVERY_PATH = ("/readyz", "/metrics", "/openapi.json", "/v1/models", "/v1/audio/speech", "/nothing")


@pytest.fixture(scope="module")
def locked():
    with serving(token="secret") as server:
        yield server


def status(server: Server, path: str, **headers: str) -> int:
    return server.client.get(path, headers=headers).status_code


def test_with_a_token_every_path_but_the_health_needs_it(locked):
    assert status(locked, "/healthz") == 200
    for path in EVERY_PATH:
        assert status(locked, path) == 401, path
        assert status(locked, path, Authorization="Bearer wrong") == 401, path
        assert status(locked, path, Authorization="Bearer secret") != 401, path


def test_a_token_in_the_query_opens_no_page(locked):
    assert status(locked, "/v1/models?access_token=secret") == 401


def test_a_websocket_takes_the_token_as_header_protocol_or_query(locked):
    path = "/v1/realtime"
    for url, options in (
        (path, {"headers": {"Authorization": "Bearer secret"}}),
        (path, {"subprotocols": ["realtime", "openai-insecure-api-key.secret"]}),
        (f"{path}?access_token=secret", {}),
    ):
        with locked.client.websocket(url, **options) as socket:
            assert "session.created" in socket.receive_text()
    with pytest.raises(Exception, match="401"), locked.client.websocket(path):
        pass


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "", "localhost.evil.example"])
def test_a_request_to_a_name_that_is_not_ours_is_refused(server, host):
    assert status(server, "/v1/models", Host=host) in (400, 403)


@pytest.mark.parametrize("host", ["localhost", "localhost:8000", "127.0.0.1:1", "[::1]:8000"])
def test_addresses_and_localhost_are_ours(server, host):
    assert status(server, "/v1/models", Host=host) == 200


def test_a_page_of_another_site_is_refused_even_on_loopback(server):
    own = server.url
    assert status(server, "/v1/models", Origin=own) == 200
    for origin in ("https://evil.example", "null", own.replace("http", "ftp")):
        assert status(server, "/v1/models", Origin=origin) == 403, origin


LARGE = 8 * 2**20
"""Bytes: more than the buffers of both ends hold"""


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/v1/audio/transcriptions", "Authorization: Bearer wrong", 401),
        ("/v1/audio/transcriptions", "Authorization: Bearer secret\r\nOrigin: http://evil", 403),
        ("/v1/audio/transcriptions", "Authorization: Bearer secret", 400),
        ("/v1/audio/speech", "Authorization: Bearer secret", 413),
        ("/nothing", "Authorization: Bearer secret", 404),
    ],
)
def test_a_client_that_sends_all_before_it_reads_gets_its_refusal(locked, path, headers, status):
    request = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\nContent-Length: {LARGE}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", locked.port), timeout=SECONDS) as client:
        client.sendall(request.encode() + bytes(LARGE))
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert json.loads(body)["error"]["message"]
