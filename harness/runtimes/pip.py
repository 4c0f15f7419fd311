"""Lets pip fetch one wheel, and says in one line why it could not."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from harness.adb.deadline import Deadline
from harness.adb.guard import spawn_guarded
from harness.errors import InfraError

_KEPT_OUTPUT_BYTES = 256 * 1024
_MAX_LINE = 240

# What stands in pip's warnings when an index cannot be used, from pip 23 to 26 and urllib3.
_CAUSES: Final = (
    (r"No module named pip\b", "this Python has no pip; `python -m ensurepip` adds it"),
    (r"No space left on device|Errno 28", "no space left on this computer's disk"),
    (
        r"name resolution|Name or service not known|nodename nor servname|Failed to resolve"
        r"|NameResolutionError|getaddrinfo failed",
        "the package index cannot be found by name",
    ),
    (r"CERTIFICATE_VERIFY_FAILED|SSLError|SSLCertVerification", "its certificate is not accepted"),
    (r"ProxyError|Tunnel connection failed", "the proxy refuses"),
    (r"40[137] Client Error|40[137] Unauthorized|\b40[137] Forbidden", "the index wants a login"),
    (r"Read timed out|ReadTimeout|ConnectTimeout|timed out", "the index does not answer in time"),
    (
        r"Connection refused|Network is unreachable|No route to host|NewConnectionError"
        r"|RemoteDisconnected|Connection aborted|ConnectionResetError|IncompleteRead",
        "the connection to the package index fails",
    ),
)
_URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>)]+", re.IGNORECASE)
_HOST = re.compile(r"host='[^']*'(?:, port=\d+)?")


def pip_download(requirement: str, options: Sequence[str], folder: Path, timeout_s: float) -> Path:
    """Runs `pip download` for one requirement; the wheel it left in `folder`, which is empty.

    The user's own configuration of pip decides where from (index, links, proxy, certificates).
    pip and all it starts are ended at the deadline, and when we are ended. Raises InfraError with
    pip's reason in one line, without addresses or credentials.
    """
    command = [sys.executable, "-m", "pip", "download", *options]
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(folder)]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--no-color"]
    deadline = Deadline(timeout_s)
    with (
        tempfile.TemporaryFile() as output,
        spawn_guarded(
            [*command, requirement], env=_environment(), stdout=output, stderr=output
        ) as pip,
    ):
        code = pip.wait(deadline)
        said = _tail(output)
    if code is None:
        raise InfraError(f"pip was not done within {timeout_s:g} s")
    wheels = list(folder.glob("*.whl"))
    if code != 0 or len(wheels) != 1:
        raise InfraError(f"pip: {essential_line(said)}")
    return wheels[0]


def essential_line(output: str) -> str:
    """What matters of pip's output after a failure, in one line without addresses (pure)."""
    errors = [line for line in output.splitlines() if line.startswith("ERROR: ")]
    # The first says what was wanted, the later ones repeat it with less.
    said = errors[0].removeprefix("ERROR: ") if errors else _last_line(output)
    cause = next((text for pattern, text in _CAUSES if re.search(pattern, output)), None)
    line = _without_addresses(said)
    line = line if len(line) <= _MAX_LINE else line[: _MAX_LINE - 3] + "..."
    return f"{line} ({cause})" if cause else line


def _without_addresses(text: str) -> str:
    return _HOST.sub("host=<index>", _URL.sub("<index>", text)).strip()


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else "it failed and said nothing"


def _environment() -> dict[str, str]:
    # Options of a user's `pip download` that would send the file elsewhere or fetch others.
    taken_out = ("PIP_DEST", "PIP_NO_BINARY", "PIP_REQUIREMENT", "PIP_QUIET", "PIP_LOG")
    kept = {name: value for name, value in os.environ.items() if name not in taken_out}
    return kept | {"PYTHONIOENCODING": "utf-8", "PYTHONWARNINGS": "ignore"}


def _tail(output: IO[bytes]) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _KEPT_OUTPUT_BYTES))
    return output.read().decode("utf-8", "replace")
