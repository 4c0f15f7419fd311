"""Fetches one file over HTTP: bounded, whole or not there.

Not pooch 1.9: it does not bound what a server sends.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import logging
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.ground.errors import InfraError
from harness.ground.files.whole_file import disk_errors
from harness.ground.host.deadline import Deadline

_log = logging.getLogger(__name__)

_CHUNK_BYTES: Final = 256 << 10
_STALL_S: Final = 30.0
_TRIES: Final = 3
_PAUSE_S: Final = 0.5


class NotThere(InfraError):
    """The server has no such file."""


@dataclass(frozen=True)
class Bounds:
    """How much (bytes) and for how long (seconds) at most."""

    max_bytes: int
    timeout_s: float


def download(url: str, path: Path, bounds: Bounds) -> None:
    """Write the content of an http(s) URL to a file.

    User and password of the URL go to its own host only, not to one that it leads to. A connection
    that breaks off is tried again. Raises NotThere; InfraError if not all of it comes within the
    bounds.
    """
    url, authorization = _apart(url)
    request = urllib.request.Request(url, headers={"User-Agent": "qnn-harness"})
    if authorization is not None:
        request.add_unredirected_header("Authorization", authorization)
    deadline = Deadline(bounds.timeout_s)
    for tries_left in reversed(range(_TRIES)):
        try:
            _attempt(request, path, bounds.max_bytes, deadline)
            return
        except UnicodeError as error:
            raise InfraError(f"{url}: its host is no name that there can be") from error
        except (http.client.HTTPException, OSError) as error:
            why = str(error) or type(error).__name__
            if not tries_left or deadline.remaining() <= _PAUSE_S:
                raise InfraError(f"{url} broke off: {why}") from error
            _log.info(f"the connection broke off ({why}); trying again")
            time.sleep(_PAUSE_S)


def _apart(url: str) -> tuple[str, str | None]:
    """A URL without user and password, and the header that tells the server both."""
    try:
        parts = urllib.parse.urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise InfraError(f"{url} is no URL") from error
    user, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, None
    login = base64.b64encode(urllib.parse.unquote_to_bytes(user)).decode()
    return parts._replace(netloc=host).geturl(), f"Basic {login}"


def _attempt(
    request: urllib.request.Request, path: Path, max_bytes: int, deadline: Deadline
) -> None:
    url, size = request.full_url, 0
    try:
        stall = max(0.1, min(_STALL_S, deadline.remaining()))
        with (
            contextlib.closing(_opener().open(request, timeout=stall)) as response,
            disk_errors(f"{url} cannot be kept in the cache"),
            path.open("wb") as file,
        ):
            while chunk := _read(response):
                size += len(chunk)
                if size + (response.length or 0) > max_bytes:
                    raise InfraError(f"{url} has more than the {max_bytes} bytes that are taken")
                file.write(chunk)
                if deadline.expired:
                    raise InfraError(f"{url} did not come within {deadline.seconds:g} s")
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in (404, 410):
            raise NotThere(f"{url}: {error.code} {error.reason}") from error
        if error.code >= 500 or error.code == 429:
            raise http.client.HTTPException(f"{error.code} {error.reason}") from error
        raise InfraError(f"{url}: {error.code} {error.reason}") from error


def _read(response: http.client.HTTPResponse) -> bytes:
    """A part of an answer. Raises HTTPException, for a connection that broke off or is silent."""
    try:
        chunk = response.read1(_CHUNK_BYTES)
    except OSError as error:
        raise http.client.HTTPException(str(error)) from error
    if not chunk and response.length:  # read1 ends quietly where a connection does
        raise http.client.IncompleteRead(b"", response.length)
    return chunk


def _opener() -> urllib.request.OpenerDirector:
    # without the handlers of file: and ftp:, which a redirection could lead to
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener
