"""Words that devices, servers and files use to steer a terminal or a CI system, a secret, and
looks for them."""

import re
from pathlib import Path

COMMANDS = (
    "::error file=a.py,line=1::pwned",
    " \t::set-output name=a::b",
    "\r::stop-commands::x",
    "##[group]pwned",
    "x ##[set-env name=A]b",
    "x##vso[task.setvariable variable=A]b",
    "##teamcity[buildStatus status='SUCCESS']",
    "section_start:0:pwned\r\x1b[0K",
    "travis_fold:start:pwned\r",
    "\u2028::error::x",
    "\u00a0::warning::x",
)
"""Commands to a CI system, in a line of their own or within one."""

STEERING = "\x1b]0;pwned\x07\x9b31m\u202ekcab\x7f"
CANARY = STEERING + "".join(f"\n{command}" for command in COMMANDS)
SECRET = "s3cr3t-can4ry"

_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\udc80-\udcff]"
)


# As the agents of CI systems look for them: GitHub behind what .NET takes for white space.
_OBEYED = re.compile(
    r"^\s*::[A-Za-z-]+(?: |::)|##\[|##vso\[|##teamcity\[|section_(?:start|end):|travis_fold:"
)


def steering(output: bytes, *, log: bool = True) -> list[str]:
    """The lines of an output, as a pipe gets it, that steer a terminal.

    With `log` it is what a CI system reads: also lines that steer that.
    """
    text = output.decode("utf-8", "surrogateescape")
    lines = re.split("[\n\r]", text)
    obeyed = [line for line in lines if log and _OBEYED.search(line)]
    return obeyed + [line for line in text.split("\n") if _STEERING.search(line)]


def files_with(secret: str, folder: Path) -> list[Path]:
    """The files below a folder in which a text stands."""
    content = secret.encode()
    return [path for path in folder.rglob("*") if path.is_file() and content in path.read_bytes()]
