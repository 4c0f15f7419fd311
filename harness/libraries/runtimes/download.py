"""Fetches one file over HTTP: bounded, taken up again where it broke off, whole or not there.

Not pooch 1.9: it neither goes on with a file that broke off nor bounds what a server sends.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import json
import logging
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from harness.ground.errors import InfraError
from harness.ground.files.cache import cache_problem
from harness.ground.files.fetched import BrokeOff
from harness.ground.files.whole_file import read_json
from harness.ground.host.deadline import Deadline

_log = logging.getLogger(__name__)

_CHUNK_BYTES: Final = 256 << 10
_STALL_S: Final = 30.0
_TRIES_WITHOUT_PROGRESS: Final = 3
_PAUSE_S: Final = 0.5
_MAX_NOTE_BYTES: Final = 4096
_CONTENT_RANGE = re.compile(r"bytes (\d{1,15})-\d{1,15}/(?:\d{1,15}|\*)", re.ASCII)


class NotThere(InfraError):
    """The server has no such file."""


@dataclass(frozen=True)
class Bounds:
    """How much (bytes) and for how long (seconds) at most."""

    max_bytes: int
    timeout_s: float


def download(url: str, folder: Path, bounds: Bounds) -> Path:
    """The content of an http(s) URL as the file `part` in `folder`, where nothing else is.

    User and password of the URL go to its own host only, not to one that it leads to. What an
    earlier call left there is continued if the server still has the same file. Raises NotThere;
    BrokeOff, and what came stays for the next call; InfraError if not all of it comes within the
    bounds.
    """
    url, authorization = _apart(url)
    part, note = folder / "part", folder / "part.json"
    deadline = Deadline(bounds.timeout_s)
    failures, have = 0, _size(part)
    while True:
        try:
            _attempt(url, authorization, part, note, bounds.max_bytes, deadline)
            return part
        except UnicodeError as error:
            raise InfraError(f"{url}: its host is no name that there can be") from error
        except (http.client.HTTPException, OSError) as error:
            # HTTPError, a refusal of the server, was dealt with; this is a broken connection
            now = _size(part)
            failures = 0 if now > have else failures + 1
            have = now
            if isinstance(error, _DiskError):
                raise cache_problem(error) from error
            if failures >= _TRIES_WITHOUT_PROGRESS or deadline.remaining() <= _PAUSE_S:
                raise BrokeOff(
                    f"{url} broke off after {now} bytes: {error or type(error).__name__}; what "
                    "came is kept, and the next try goes on from there"
                ) from error
            _log.info(f"the connection broke off after {now / 1e6:.1f} MB; going on from there")
            time.sleep(_PAUSE_S)


class _DiskError(OSError):
    """Our own disk's fault, and not the connection's."""


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
    told = base64.b64encode(urllib.parse.unquote_to_bytes(user)).decode()
    return parts._replace(netloc=host).geturl(), f"Basic {told}"


def _attempt(
    url: str,
    authorization: str | None,
    part: Path,
    note: Path,
    max_bytes: int,
    deadline: Deadline,
) -> None:
    have = _size(part)
    validator = _validator(note, url)
    if have and validator is None:
        have = 0
    headers = {"User-Agent": "qnn-harness", "Accept-Encoding": "identity"}
    if have and validator:
        headers |= {"Range": f"bytes={have}-", "If-Range": validator}
    request = urllib.request.Request(url, headers=headers)
    if authorization is not None:
        request.add_unredirected_header("Authorization", authorization)
    try:
        stall = max(0.1, min(_STALL_S, deadline.remaining()))
        with contextlib.closing(_opener().open(request, timeout=stall)) as response:
            begin = _begin(response, have)
            said = response.headers.get("Content-Length", "")
            if said.isdecimal() and (size := begin + int(said[:18])) > max_bytes:
                raise InfraError(f"{url} has {size} bytes, at most {max_bytes} are taken")
            with _written(part, note, url, response, begin) as file:
                _copy(response, file, begin, max_bytes, deadline, url)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in (404, 410):
            raise NotThere(f"{url}: {error.code} {error.reason}") from error
        if error.code == 416:
            # what we have does not belong to what the server has now
            part.unlink(missing_ok=True)
            raise http.client.HTTPException("the file became shorter") from error
        if error.code >= 500 or error.code == 429:
            raise http.client.HTTPException(f"{error.code} {error.reason}") from error
        raise InfraError(f"{url}: {error.code} {error.reason}") from error


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


def _begin(response: http.client.HTTPResponse, have: int) -> int:
    """From which byte on the answer is; 0 where the server begins anew."""
    if response.status != 206:
        return 0
    found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if found is None or int(found[1]) != have:
        raise InfraError("the server sends another part of the file than was asked for")
    return have


@contextlib.contextmanager
def _written(
    part: Path, note: Path, url: str, response: http.client.HTTPResponse, begin: int
) -> Iterator[IO[bytes]]:
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        if not begin:
            part.unlink(missing_ok=True)
            validator = response.headers.get("ETag") or response.headers.get("Last-Modified")
            if validator is None or validator.startswith("W/"):
                note.unlink(missing_ok=True)
            else:
                note.write_text(json.dumps({"url": _named(url), "validator": validator[:1000]}))
        file = part.open("ab")
    except OSError as error:
        raise _DiskError(str(error)) from error
    with file:
        yield file


def _copy(
    response: http.client.HTTPResponse,
    file: IO[bytes],
    size: int,
    max_bytes: int,
    deadline: Deadline,
    url: str,
) -> None:
    while chunk := response.read1(_CHUNK_BYTES):
        size += len(chunk)
        if size > max_bytes:
            file.truncate(0)
            raise InfraError(f"{url} does not end after {max_bytes} bytes")
        try:
            file.write(chunk)
        except OSError as error:
            raise _DiskError(str(error)) from error
        if deadline.remaining() <= 0:
            raise TimeoutError("it takes too long")
    # read1 ends quietly where a connection does
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)


def _validator(note: Path, url: str) -> str | None:
    try:
        said = read_json(note, _MAX_NOTE_BYTES)
        kept = said["validator"]
        usable = said["url"] == _named(url) and isinstance(kept, str) and kept.isprintable()
        return kept if usable else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _named(url: str) -> str:
    # a URL may hold a token
    return hashlib.sha256(url.encode()).hexdigest()


def _size(part: Path) -> int:
    try:
        return part.stat().st_size
    except OSError:
        return 0
