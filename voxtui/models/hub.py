"""A model hub over HTTP: what a repository holds, and its files, continued where they stopped."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

from voxtui.errors import ModelError

HUB = "https://huggingface.co"
BLOCK = 1 << 20
PAUSES_WITHIN = 30.0
"""seconds without a byte after which a connection to the hub counts as broken"""
LONGEST_LISTING = 16 << 20
"""bytes"""


class Unreachable(ModelError):
    """The hub does not answer, refuses, or stopped in the middle."""


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository, at one commit."""

    repository: str
    commit: str
    path: str
    size: int
    """bytes"""
    sha256: str | None
    """known of large files"""
    blob: str = ""
    """git's SHA-1 of its content, where `sha256` is not known"""

    @property
    def url(self) -> str:
        return f"{_endpoint()}/{self.repository}/resolve/{self.commit}/{quote(self.path)}"

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


def asking(url: str, method: str = "GET", **headers: str) -> Request:
    """A request for `url`, with the user's token where the environment or the hub's login has one.

    The token is not sent along when the hub redirects the request to where the files are kept.
    """
    request = Request(url, headers=headers, method=method)
    if token := _token():
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    return request


def listing(repository: str) -> list[HubFile]:
    """What `repository` holds now. Raises ModelError."""
    url = f"{_endpoint()}/api/models/{repository}/revision/main?blobs=true"
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise ModelError("HF_HUB_OFFLINE forbids asking the hub.", "Unset it for the fetch.")
    try:
        with urlopen(asking(url), timeout=PAUSES_WITHIN) as response:
            return list(_files(repository, json.loads(response.read(LONGEST_LISTING))))
    except HTTPError as error:
        raise _refusal(error, repository, repository) from error
    except URLError as error:
        raise _unreachable(error) from error
    except (OSError, HTTPException, ValueError, LookupError, TypeError) as error:
        raise Unreachable(f"The hub's answer about {repository} cannot be understood.") from error


def grow(file: BinaryIO, wanted: HubFile, done: Callable[[int], object]) -> None:
    """Append to `file` what it lacks of `wanted`, telling `done` how many bytes are there.

    A server that sends too much is stopped soon after. Raises Unreachable; an OSError is the
    disk's.
    """
    done(file.tell())
    for block in _blocks(file, wanted):
        file.write(block)
        done(min(file.tell(), wanted.size))
        if file.tell() > wanted.size:
            return
    if file.tell() < wanted.size:
        raise _broken(wanted)


def _refusal(error: HTTPError, repository: str, name: str) -> Unreachable:
    """What it means that the hub answered `error` when asked for `name` of `repository`."""
    error.close()  # it is the answer too, with its connection
    match error.headers.get("X-Error-Code"), error.code:
        case "GatedRepo", _:
            return Unreachable(
                f"{repository} is gated: the hub sends it only to those who accepted its terms.",
                f"Accept them at {HUB}/{repository}, then run the same command with HF_TOKEN set.",
            )
        case "RepoNotFound", _:
            return Unreachable(
                f"The hub has no {repository}, or does not show it to you.",
                "A private one needs your HF_TOKEN.",
            )
        case _, 401 | 403:
            return Unreachable(
                f"The hub refuses to send {name}: {error.code} {error.reason}.",
                "Is your HF_TOKEN still valid?",
            )
        case _:
            reason = str(error.reason).partition("\n")[0].rstrip(".")  # of a redirect: three lines
            return Unreachable(f"The hub refuses to send {name}: {error.code} {reason}.")


def _endpoint() -> str:
    endpoint = os.environ.get("HF_ENDPOINT") or HUB
    with suppress(ValueError):  # no URL, or no port
        parts = urlsplit(endpoint)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return endpoint.rstrip("/")
    raise ModelError(f"HF_ENDPOINT: {endpoint} is no address of a hub.", f"It is like {HUB}.")


def hub_home() -> Path:
    """Where the hub's own client keeps its token and its cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.path.expanduser(os.environ.get("HF_HOME") or f"{cache}/huggingface"))


def _token() -> str:
    """Empty where there is none. Raises ModelError for one that no header can carry."""
    token = os.environ.get("HF_TOKEN", "")
    with suppress(OSError, ValueError):
        path = os.environ.get("HF_TOKEN_PATH")
        token = token or (Path(path) if path else hub_home() / "token").read_text()
    if not re.fullmatch(r"[!-~]*", token.strip()):
        raise ModelError(
            "The token for the hub holds characters that no token has.", "Copy it again."
        )
    return token.strip()


def _files(repository: str, answer: dict[str, Any]) -> Iterator[HubFile]:
    for entry in answer["siblings"]:
        large: dict[str, Any] = entry.get("lfs") or {}
        path = PurePosixPath(entry["rfilename"])
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(path)  # it would be written outside of the model's directory
        yield HubFile(
            repository=repository,
            commit=str(answer["sha"]),
            path=str(path),
            size=int(large.get("size", entry["size"])),
            sha256=large.get("sha256"),
            blob=str(entry["blobId"]),
        )


def _blocks(file: BinaryIO, wanted: HubFile) -> Iterator[bytes]:
    have = file.tell()
    if have >= wanted.size:
        return
    request = asking(wanted.url, Range=f"bytes={have}-")
    try:
        with urlopen(request, timeout=PAUSES_WITHIN) as response:
            if response.status != 206:  # the server sends the whole file, whatever was asked
                if response.length not in (None, wanted.size):
                    raise Unreachable(f"What the hub sends is not {wanted.name}: another length.")
                file.truncate(0)
                file.seek(0)
            while block := response.read(BLOCK):
                yield block
    except HTTPError as error:
        raise _refusal(error, wanted.repository, wanted.name) from error
    except URLError as error:
        raise _unreachable(error) from error
    except (OSError, HTTPException) as error:
        raise _broken(wanted) from error


def _unreachable(error: URLError) -> Unreachable:
    reason = getattr(error.reason, "strerror", None) or error.reason
    return Unreachable(f"The hub cannot be reached: {reason}.", "Check the network.")


def _broken(wanted: HubFile) -> Unreachable:
    return Unreachable(
        f"The connection to the hub broke while fetching {wanted.name}.",
        "Try again: it goes on where it stopped.",
    )
