"""A model hub over HTTP: list the files of a repository, and resume downloads of them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

from voxtui.errors import ModelError
from voxtui.models.catalogue import ModelFile
from voxtui.models.store import BLOCK, RESUMES, Report, reason
from voxtui.settings.files import read_file

HUB = "https://huggingface.co"
PROBE_SECONDS = 3.0
"""Timeout of `check`, for each address of the hub."""
STALL_SECONDS = 30.0
"""Time without a byte after which a connection counts as broken."""


class HubError(ModelError):
    """The hub does not answer, refuses, or stops before the end."""


def listing(repository: str) -> list[ModelFile]:
    url = f"{_endpoint()}/api/models/{repository}/revision/main?blobs=true"
    invalid = HubError(f"Invalid response from the hub about {repository}.")
    with (
        _translated(repository, repository, invalid),
        urlopen(_request(url), timeout=STALL_SECONDS) as response,
    ):
        return list(_files(repository, json.loads(response.read(16 << 20))))


def check(file: ModelFile) -> None:
    """Raise HubError unless the hub offers `file` and answers within PROBE_SECONDS."""
    try:
        with (
            _translated(file.repository, file.name, HubError("The answer of the hub is invalid.")),
            urlopen(_request(_url(file), "HEAD"), timeout=PROBE_SECONDS),
        ):
            return
    except HubError as error:
        cause = error.__cause__
        if isinstance(cause, TimeoutError) or isinstance(getattr(cause, "reason", 0), TimeoutError):
            late = f"The hub does not answer within {PROBE_SECONDS:g} seconds."
            raise HubError(late, "Check the network.") from cause
        raise


def append(partial: BinaryIO, file: ModelFile, report: Report) -> None:
    """Append the missing bytes of `file` to `partial`. Raises HubError, and OSError of the disk."""
    report(partial.tell())
    for block in _blocks(partial, file):
        partial.write(block)
        report(min(partial.tell(), file.size))
        if partial.tell() > file.size:  # the server sends more
            return
    if partial.tell() < file.size:
        raise _broken(file)


def hub_home() -> Path:
    """Return the directory of the hub client's own token and cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.path.expanduser(os.environ.get("HF_HOME") or f"{cache}/huggingface"))


def _request(url: str, method: str = "GET", **headers: str) -> Request:
    """Return a request. One to the hub has the user's token, from the environment or the login.

    A redirect to a file server does not get the token. Raises HubError for a request to the hub if
    the user forbids them.
    """
    request = Request(url, headers=headers, method=method)
    if not url.startswith(f"{_endpoint()}/"):
        return request
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise HubError("HF_HUB_OFFLINE forbids requests to the hub.", "Unset it for the download.")
    if token := _token():
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    return request


def _url(file: ModelFile) -> str:
    return f"{_endpoint()}/{file.repository}/resolve/{file.commit}/{quote(file.path)}"


def _endpoint() -> str:
    endpoint = os.environ.get("HF_ENDPOINT") or HUB
    with suppress(ValueError):  # no URL, or no port
        parts = urlsplit(endpoint)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return endpoint.rstrip("/")
    raise ModelError(f"HF_ENDPOINT: {endpoint} is not the URL of a hub.", f"Example: {HUB}.")


def _token() -> str:
    """Return the user's token, or "". Raises ModelError for one that does not fit into a header."""
    token = os.environ.get("HF_TOKEN", "")
    if not token:
        path = os.environ.get("HF_TOKEN_PATH")
        with suppress(OSError, ValueError):
            token = read_file(Path(path) if path else hub_home() / "token", 4096).decode()
    if not re.fullmatch(r"[!-~]*", token.strip()):
        raise ModelError("The token of the hub contains invalid characters.", "Copy it again.")
    return token.strip()


def _files(repository: str, answer: dict[str, Any]) -> Iterator[ModelFile]:
    for entry in answer["siblings"]:
        large: dict[str, Any] = entry.get("lfs") or {}
        path = PurePosixPath(entry["rfilename"])
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(path)  # outside of the model's directory
        digest = f"sha256:{large['sha256']}" if "sha256" in large else f"git:{entry['blobId']}"
        yield ModelFile(
            repository=repository,
            path=str(path),
            size=int(large.get("size", entry["size"])),
            digest=digest,
            commit=str(answer["sha"]),
        )


def _blocks(partial: BinaryIO, file: ModelFile) -> Iterator[bytes]:
    start = partial.tell()
    if start >= file.size:
        return
    request = _request(_url(file), Range=f"bytes={start}-")
    with (
        _translated(file.repository, file.name, _broken(file)),
        urlopen(request, timeout=STALL_SECONDS) as response,
    ):
        if response.status != 206:  # the server ignored the range and sends the whole file
            if response.length not in (None, file.size):
                raise HubError(
                    f"The hub sent {response.length} bytes for {file.name} instead of {file.size}."
                )
            partial.truncate(0)
            partial.seek(0)
        while block := response.read(BLOCK):
            yield block


@contextmanager
def _translated(repository: str, name: str, other: HubError) -> Generator[None]:
    """Raise a HubError for an error of a request: `other`, unless its status or cause says more."""
    try:
        yield
    except HTTPError as error:
        raise _status_error(error, repository, name) from error
    except URLError as error:
        text = reason(error.reason) if isinstance(error.reason, OSError) else error.reason
        raise HubError(f"The hub cannot be reached: {text}.", "Check the network.") from error
    except (OSError, HTTPException, ValueError, LookupError, TypeError) as error:
        raise other from error


def _status_error(error: HTTPError, repository: str, name: str) -> HubError:
    error.close()  # it is the response too, with its connection
    match error.headers.get("X-Error-Code"), error.code:
        case "GatedRepo", _:
            return HubError(
                f"{repository} is gated: the hub requires that you accept its terms "
                f"(HTTP {error.code}).",
                f"Accept them at {HUB}/{repository}, then run the same command with HF_TOKEN set.",
            )
        case "RepoNotFound", _:
            return HubError(
                f"The hub has no {repository}, or it is private (HTTP {error.code}).",
                "For a private repository set HF_TOKEN.",
            )
        case _, 401 | 403:
            return HubError(
                f"The hub refuses to send {name} (HTTP {error.code}, {error.reason}).",
                "Check that HF_TOKEN is valid.",
            )
        case _:
            text = str(error.reason).partition("\n")[0].rstrip(".")  # of a redirect: three lines
            return HubError(f"The hub refuses to send {name} (HTTP {error.code}, {text}).")


def _broken(file: ModelFile) -> HubError:
    return HubError(f"The connection to the hub broke during the download of {file.name}.", RESUMES)
