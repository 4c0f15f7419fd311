"""Downloads by http(s): bounded in size and time, and continued where they were interrupted.

Not pooch 1.9: it does not bound the size of downloads.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import re
import time
import urllib.parse
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harness.core.deadline import Deadline
from harness.core.errors import InfraError
from harness.core.files import disk_errors, read_json, write_json
from harness.core.notices import progress_reporter
from harness.core.outgoing_text import one_line
from harness.core.state_folders import require_room

if TYPE_CHECKING:  # few runs download anything, and all would import ssl
    import http.client
    import urllib.request

_log = logging.getLogger(__name__)

_CHUNK_BYTES: Final = 256 << 10
_STALL_S: Final = 30.0
_TRIES: Final = 3
_PAUSE_S: Final = 0.5
_MAX_NOTE_BYTES: Final = 4096
_MAX_REASON: Final = 300
_STRONG: Final = re.compile(r'"[!-~]{0,256}"')
_RANGE: Final = re.compile(r"bytes (\d{1,18})-")


class NotOnServer(InfraError):
    """The server has no such file."""


@dataclass(frozen=True)
class Bounds:
    """Bounds of a download: bytes and seconds."""

    max_bytes: int
    timeout_s: float


def download(url: str, path: Path, bounds: Bounds) -> None:
    """Write the content of an http(s) URL to a file.

    User and password of the URL are sent to its own host only, not to one that it redirects to. A
    broken connection is retried. What an interrupted call left at `path`, with a note beside it, is
    continued unless the content has changed. Raises NotOnServer; InfraError if the content is too
    large, or does not fit on the disk.
    """
    import http.client
    import urllib.request

    try:
        parts = urllib.parse.urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise InfraError(f"{url} is not a URL") from error
    user, separator, host = parts.netloc.rpartition("@")
    if separator:
        url = parts._replace(netloc=host).geturl()
    request = urllib.request.Request(url, headers={"User-Agent": "qnn-harness"})
    if separator:
        login = base64.b64encode(urllib.parse.unquote_to_bytes(user)).decode()
        request.add_unredirected_header("Authorization", f"Basic {login}")
    deadline = Deadline(bounds.timeout_s)
    for tries_left in reversed(range(_TRIES)):
        try:
            _attempt(request, path, bounds.max_bytes, deadline)
            return
        except UnicodeError as error:
            raise InfraError(f"{url}: its host name is not valid") from error
        except (http.client.HTTPException, OSError) as error:
            why = one_line(str(error) or type(error).__name__, _MAX_REASON)
            if not tries_left or deadline.remaining() <= _PAUSE_S:
                raise InfraError(f"the connection to {url} was lost: {why}") from error
            _log.info(f"the connection was lost ({why}); trying again")
            time.sleep(_PAUSE_S)


def _attempt(
    request: urllib.request.Request, path: Path, max_bytes: int, deadline: Deadline
) -> None:
    import http.client
    import urllib.error

    url, note = request.full_url, path.with_name(f"{path.name}.json")
    title = f"downloading {path.name.removesuffix('.part')}"
    validator, size = _interrupted(path, note)
    request.headers.pop("Range", None)
    if size:
        request.headers.update({"Range": f"bytes={size}-", "If-range": validator})
    try:
        stall = max(0.1, min(_STALL_S, deadline.remaining()))
        with (
            contextlib.closing(_opener().open(request, timeout=stall)) as response,
            progress_reporter("") as report,
            disk_errors(f"cannot write {url} to the cache"),
        ):
            if response.status != http.client.PARTIAL_CONTENT:
                # Qualcomm's server at times sends a short page of an error with 200:
                # https://github.com/pytorch/executorch/pull/19233
                if (response.length or 0) < size and "ETag" not in response.headers:
                    problem = f"the server did not send the rest; remove {path} to start again"
                    raise http.client.HTTPException(problem)
                size = 0
                path.unlink(missing_ok=True)
                write_json(note, {"validator": response.headers.get("ETag")})
            elif not _is_rest(response.headers, validator, size):
                note.unlink(missing_ok=True)
                raise http.client.HTTPException("the server resumed with other content")
            total = size + (response.length or 0)
            with path.open("ab") as file:
                while chunk := _read(response):
                    if max(size + len(chunk), total) > max_bytes:
                        raise InfraError(f"{url} is larger than the limit of {max_bytes} bytes")
                    require_room(path.parent, max(total - size, len(chunk)), title)
                    file.write(chunk)
                    size += len(chunk)
                    report(title, size, total, "MB")
                    if deadline.expired:
                        raise InfraError(f"{url} did not arrive within {deadline.seconds:g} s")
        note.unlink(missing_ok=True)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in (404, 410):
            raise NotOnServer(f"{url}: {error.code} {error.reason}") from error
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            note.unlink(missing_ok=True)
        elif error.code < 500 and error.code != 429:
            raise InfraError(f"{url}: {error.code} {error.reason}") from error
        raise http.client.HTTPException(f"{error.code} {error.reason}") from error


def _interrupted(path: Path, note: Path) -> tuple[str, int]:
    """Return the validator of what an interrupted attempt has left, and its size."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        validator = read_json(note, _MAX_NOTE_BYTES)["validator"]
        if _STRONG.fullmatch(validator):
            return validator, path.stat().st_size
    return "", 0


def _is_rest(headers: Message, validator: str, size: int) -> bool:
    begin = _RANGE.match(headers.get("Content-Range", ""))
    is_same = headers.get("ETag", validator) == validator
    return is_same and begin is not None and int(begin[1]) == size


def _read(response: http.client.HTTPResponse) -> bytes:
    """Read a part of a response. Raises HTTPException for a broken or silent connection."""
    import http.client

    try:
        chunk = response.read1(_CHUNK_BYTES)
    except OSError as error:
        raise http.client.HTTPException(str(error)) from error
    if not chunk and response.length:  # read1 returns nothing if the connection ends
        raise http.client.IncompleteRead(b"", response.length)
    return chunk


def _opener() -> urllib.request.OpenerDirector:
    import urllib.request

    # without the handlers of file: and ftp:, which a redirection could lead to
    kinds = "Proxy", "HTTP", "HTTPS", "HTTPDefaultError", "HTTPRedirect", "Unknown"
    opener = urllib.request.OpenerDirector()
    for kind in kinds:
        opener.add_handler(getattr(urllib.request, f"{kind}Handler")())
    opener.add_handler(urllib.request.HTTPErrorProcessor())
    return opener
