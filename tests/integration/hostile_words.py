"""Words that devices, servers and files use to steer a terminal, a secret, and looks for both."""

from __future__ import annotations

import re
from pathlib import Path

CANARY = "\x1b]0;pwned\x07\x9b31m\u202ekcab\x7f"
SECRET = "s3cr3t-can4ry"

_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\udc80-\udcff]"
)


def steering(output: bytes) -> list[str]:
    """The lines of an output, as a pipe gets it, that hold what steers a terminal."""
    lines = output.decode("utf-8", "surrogateescape").split("\n")
    return [line for line in lines if _STEERING.search(line)]


def files_with(secret: str, folder: Path) -> list[Path]:
    """The files below a folder in which a text stands."""
    wanted = secret.encode()
    return [path for path in folder.rglob("*") if path.is_file() and wanted in path.read_bytes()]
