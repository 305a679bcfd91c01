from __future__ import annotations

import ipaddress
from contextlib import suppress
from urllib.parse import urlsplit


def is_loopback(url: str) -> bool:
    """Return True if requests to `url` stay on this machine; False for an invalid URL."""
    with suppress(ValueError):
        host = urlsplit(url).hostname or ""
        return is_loopback_host(host) or host in ("0.0.0.0", "::")  # servers print them
    return False


def is_loopback_host(host: str) -> bool:
    with suppress(ValueError):
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    return False


def check_url(key: str, url: str) -> None:
    """Raise ValueError unless `url` is empty or the base URL of a server."""
    if not url:
        return
    if "@" in url or "?" in url:
        raise ValueError(
            f"{key} must not contain credentials; set the environment variable VOXTUI_API_KEY"
        )
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        valid = False
    if not valid or not url.isprintable() or " " in url:
        raise ValueError(f'{key} "{url}" is not of the form http://HOST:PORT/v1')
