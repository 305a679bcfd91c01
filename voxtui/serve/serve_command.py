"""`voxtui serve`: load the models, listen, and stop on a signal."""

from __future__ import annotations

import os
import secrets
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from voxtui.errors import InputError, ModelError, how_to_install
from voxtui.settings.paths import user_path
from voxtui.settings.urls import is_loopback_host
from voxtui.tools.machine import free_memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from voxtui.serve.shared_models import Pool
    from voxtui.settings.schema import Config, ServeConfig

KEY_VARIABLE = "VOXTUI_API_KEY"
"""The variable with the key, which voxtui as a client reads as well."""

HEADER_BYTES = 16 * 1024

MESSAGE_BYTES = 1024 * 1024
"""Maximum size of a WebSocket message: 32 s of sound."""

PING_SECONDS = 20.0

BACKLOG = 128

SESSION_GB = {"embedded": 1.5, "remote": 0.3}
"""Memory of a set of models in gigabytes, as measured with the default chat model."""


def run(
    config: Config,
    load: Callable[[Config, Callable[[str], object]], AbstractContextManager[Pool]] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM. `load` replaces our own loading. Raises VoxtuiError."""
    try:
        import uvicorn

        from voxtui.serve.app import build_app, model_name
        from voxtui.serve.server import AnnouncingServer, end_process
        from voxtui.serve.shared_models import warm_pool
        from voxtui.serve.timeouts import HttpProtocol, WebSocketProtocol
    except ImportError as error:
        raise InputError(
            f"The server's packages are not installed ({error.name}).", how_to_install("serve")
        ) from error

    def note(sentence: str) -> None:
        click.echo(sentence, err=True)

    # Other models than ours take what they take.
    if load is None and (sentence := check_memory(config)):
        note(sentence)
    cert, private_key = _tls_files(config.serve)
    with bound(config.serve) as listener:  # before the models load: the port may be in use
        note("Loading the models.")
        with (load or warm_pool)(config, note) as pool:
            model = model_name(config, pool.brain)
            token, is_new = key(config.serve)
            hosts = frozenset({config.serve.host.lower()})
            app, calls = build_app(config, pool, token, hosts, address_of(listener))
            server = AnnouncingServer(
                uvicorn.Config(
                    app,
                    ws=WebSocketProtocol,
                    http=HttpProtocol,
                    lifespan="off",
                    proxy_headers=False,
                    access_log=False,  # a URL may hold a key
                    log_level="warning",
                    ws_max_size=MESSAGE_BYTES,
                    ws_per_message_deflate=False,  # it delays each piece of sound
                    ws_ping_interval=PING_SECONDS,
                    ws_ping_timeout=PING_SECONDS,
                    h11_max_incomplete_event_size=HEADER_BYTES,
                    server_header=False,
                    ssl_certfile=cert,
                    ssl_keyfile=private_key,
                ),
                calls,
                lambda: _announce(config, listener, model, token if is_new else None),
            )
            with suppress(KeyboardInterrupt):  # uvicorn has drained and raises it again
                server.run(sockets=[listener])
            end_process()  # closing eight sets takes seconds, and they have nothing to save


def check_memory(config: Config) -> str:
    """Return a notice about the memory of several sessions. Raises InputError for too little."""
    sessions, each = config.serve.sessions, SESSION_GB.get(_expected_brain(config))
    if sessions == 1 or each is None:
        return ""
    needed, free = sessions * each, free_memory()
    there = "" if free is None else f"; {free / 1e9:.1f} GB are free"
    if free is not None and needed > free / 1e9:
        raise InputError(
            f"{sessions} sessions take about {needed:.1f} GB of memory{there}.",
            f"--sessions {max(1, int(free / 1e9 / each))} fits.",
        )
    return f"{sessions} sessions take about {needed:.1f} GB of memory{there}."


def _expected_brain(config: Config) -> str:
    """Return "embedded", "voxtral" or "remote"; for "auto" the best one that is installed here."""
    from voxtui.models.cuda import check_voxtral
    from voxtui.models.installed import voxtral_directory

    if config.brain.name != "auto":
        return config.brain.name
    try:
        check_voxtral()
        voxtral_directory(config.brain.voxtral.model)
    except ModelError:
        return "embedded"
    return "voxtral"


def key(serve: ServeConfig) -> tuple[str | None, bool]:
    """Return the key of clients, None on loopback and a Unix socket, and whether it is new."""
    if serve.uds or is_loopback_host(serve.host):
        return None, False
    if given := os.environ.get(KEY_VARIABLE):
        return given, False
    return secrets.token_urlsafe(24), True


def bound(serve: ServeConfig) -> socket.socket:
    """Return a listening socket. Raises InputError."""
    if serve.uds:
        return _unix_socket(user_path(serve.uds))
    host, port = serve.host, serve.port
    try:
        (family, _, _, _, address), *_ = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        why = str(error.strerror).partition(" (while ")[0]  # Python adds the address again
        raise InputError(
            f"voxtui cannot listen on {host}:{port}: {why}.",
            "--port and --host choose another address.",
        ) from error


def address_of(listener: socket.socket) -> str:
    """Return the address on which `listener` listens; for a Unix socket that of loopback."""
    return "127.0.0.1" if listener.family == socket.AF_UNIX else listener.getsockname()[0]


def _unix_socket(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    try:
        _remove_stale(path)
        before = os.umask(0o177)  # only this user may connect
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise InputError(f"voxtui cannot listen on {path}: {error.strerror or error}.") from error
    return listener


def _remove_stale(path: Path) -> None:
    """Remove a socket on which no process listens. Raises OSError for any other socket or file."""
    if not os.path.lexists(path):
        return
    if not path.is_socket():
        raise OSError("it exists and is not a socket")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise OSError("another process listens there")


def _tls_files(serve: ServeConfig) -> tuple[Path | None, Path | None]:
    """Return the files of the certificate and its key. Raises InputError."""
    if not serve.tls_cert and not serve.tls_key:
        return None, None
    if not (serve.tls_cert and serve.tls_key):
        raise InputError("--tls-cert and --tls-key must be given together.")
    files = user_path(serve.tls_cert), user_path(serve.tls_key)
    for path in files:
        if not os.access(path, os.R_OK):
            raise InputError(f"{path}: cannot be read.")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*files)
    except OSError as error:  # SSLError is one
        why = f" ({error.strerror})" if not isinstance(error, ssl.SSLError) else ""
        raise InputError(
            f"{files[0]}: cannot be used for https{why}.",
            "The certificate and its key are PEM files that belong together.",
        ) from error
    return files


def reached_at(host: str) -> str:
    """Return the address by which other machines reach a server on `host`. Sends nothing.

    For a server on all addresses it is that of the default route, if there is one.
    """
    everywhere = {"0.0.0.0": ("192.0.2.1", socket.AF_INET), "::": ("2001:db8::1", socket.AF_INET6)}
    if host not in everywhere:
        return host
    somewhere, family = everywhere[host]
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((somewhere, 9))
        return probe.getsockname()[0]
    return host


def _announce(config: Config, listener: socket.socket, model: str, new_token: str | None) -> None:
    """Print the ready line, and a new key, which is shown only this once."""
    uds = config.serve.uds
    if uds:
        where = f"unix:{user_path(uds)}"
    else:
        host, port = reached_at(config.serve.host), listener.getsockname()[1]
        scheme = "https" if config.serve.tls_cert else "http"
        where = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/v1"
    voice = "no voice" if config.voice.engine == "none" else f"voice {config.voice.name}"
    sessions = config.serve.sessions
    click.echo(f"Ready: {where} ({model}, {voice}, {sessions} at once). Ctrl+C stops.")
    if not uds:
        page = where.removesuffix("v1") + (f"#token={new_token}" if new_token else "")
        click.echo(f"Page to talk in a browser: {page}")
    if new_token:
        click.echo(f"API key, shown this once: {new_token}")
        click.echo(f"Set {KEY_VARIABLE} to choose your own.", err=True)
