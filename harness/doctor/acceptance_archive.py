"""The archive of an acceptance, to be sent to others: redacted, bounded, written atomically.

A recipient shows it as a row of docs/tutorial/phone.md.
"""

from __future__ import annotations

import errno
import getpass
import json
import os
import re
import socket
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pydantic import TypeAdapter

from harness.containers.manifest import undated_entry
from harness.core.archive import ArchiveError, ArchiveLimits, open_archive
from harness.core.bounded_json import parse_model, problem_in
from harness.core.errors import ConfigError, InfraError
from harness.core.files import open_regular, written_whole
from harness.core.outgoing_text import counted, without_secrets
from harness.core.paths_inside import name_problem, read_inside
from harness.doctor.check_results import Checked, DoctorReport, report_of
from harness.evidence.redaction import EvidenceFile, clean, fit, redact
from harness.lab.device_config import SshDeviceConfig
from harness.lab.inventory import Lab
from harness.runtimes.local_sources import SDK_VARIABLES
from harness.transport.adb_address import USER_SERVER

COLUMNS: Final = ("Device", "System", "QNN", "Layers that work", "What did not")
"""The columns of a table of archives."""

REPORT: Final = "report.json"
_FILE_BYTES: Final = 1 << 20
_TOTAL_BYTES: Final = 32 << 20
_LIMITS: Final = ArchiveLimits(members=1000, total_bytes=2 * _TOTAL_BYTES, ratio=2000)
_READ_BYTES: Final = 64 << 20
_LEAST_CHARS: Final = 3
_CELL_CHARS: Final = 200
# names that identify nobody, and occur in too many lines
_NOBODY: Final = frozenset({"root", "user", "localhost", "/", "/root"})
_README: Final = """The result of `qnn-harness acceptance run` for one device.

report.txt   each check, each step, and what to do
report.json  the same for programs
logs/        input and output of the steps, and the logs of the device from that time

Removed: serial numbers, names of this computer, of adb hosts and of the user, sources of
libraries, folders, accounts, e-mail addresses, Wi-Fi names, MACs, phone numbers.
Please review the archive before you send it.
"""


def lab_words(lab: Lab) -> dict[str, str]:
    """Return {word: replacement} for words of a lab that identify its owner (pure)."""
    words: dict[str, str] = {}
    for source in lab.runtimes:
        for value in source.model_dump(mode="json").values():
            if isinstance(value, str) and "/" in value:
                words |= {value: "<source>", urlsplit(value).hostname or "": "<source>"}
    by_adb = [address for device in lab.devices if (address := device.server(lab)) is not None]
    servers = [host.address for host in lab.hosts] + by_adb
    for device in lab.devices:
        if isinstance(device, SshDeviceConfig):
            words |= dict.fromkeys((device.serial, *device.login.login.split("@")), "<board>")
    for server in servers:
        login = getattr(server, "login", "")
        if server != USER_SERVER:
            words |= dict.fromkeys((server.host, login, login.partition("@")[0]), "<adb host>")
    for serial in filter(None, (getattr(device, "serial", None) for device in lab.devices)):
        words |= {serial: "<serial>", serial.rpartition(":")[0]: "<serial>"}
    return words


def private_words(
    words: Mapping[str, str], cache: Path, environment: Mapping[str, str]
) -> dict[str, str]:
    """Return {word: replacement} for all private words: `words`, and those of this computer."""
    words = dict(words)
    words |= {environment.get(name, "").strip(): f"<{name}>" for name in SDK_VARIABLES}
    words |= {
        sys.prefix: "<Python>",
        str(cache): "<cache>",
        str(Path.cwd()): "<folder>",
        str(Path.home()): "<home>",
    }
    words[socket.gethostname()] = "<host>"
    try:
        words[getpass.getuser()] = "<user>"
    except (KeyError, OSError):  # an account without a name
        words[str(os.getuid())] = "<user>"
    return {
        word: replacement
        for word, replacement in words.items()
        if len(word) >= _LEAST_CHARS and word not in _NOBODY
    }


def redact_words(text: str, words: Mapping[str, str]) -> str:
    """Return `text` with these words, where they stand alone, and private data replaced (pure)."""
    text = redact(without_secrets(text))
    if not words:
        return text
    # the longest come first: one may be part of another
    pattern = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
    return re.sub(rf"(?<![\w-])(?:{pattern})(?![\w-])", lambda match: words[match[0]], text)


def check_writable(path: Path) -> None:
    """Raise ConfigError if no archive can be written at `path`."""
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    except OSError as error:
        raise _unwritten(path, error) from error


def _unwritten(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"cannot be written: {error.strerror}", file=path)


def write_archive(
    path: Path,
    report: DoctorReport,
    show: Callable[[DoctorReport], list[str]],
    logs: Path,
    words: Mapping[str, str],
) -> None:
    """Write a report, as JSON and as formatted by `show`, with all files below `logs`.

    Raises ConfigError for a path that cannot be written, InfraError.
    """
    # before formatting, which may break a line within a word
    report = report_of(
        replace(
            check,
            subject=redact_words(check.subject, words),
            name=redact_words(check.name, words),
            found=redact_words(check.found, words),
            advice=redact_words(check.advice, words),
        )
        for check in report.checks
    )
    data = json.dumps(asdict(report), indent=1)
    texts = {"README.txt": _README, "report.txt": "\n".join(show(report)), REPORT: data}
    try:
        with written_whole(path) as stream, zipfile.ZipFile(stream, "w") as archive:
            for name, text in texts.items():
                archive.writestr(undated_entry(name), text, zipfile.ZIP_DEFLATED)
            bytes_left = _TOTAL_BYTES
            for file in sorted(logs.rglob("*")):
                name = file.relative_to(logs).as_posix()
                # a device names some of them; only regular files are packed
                if name_problem(name) or file.is_symlink() or not file.is_file():
                    continue
                text = redact_words(clean(read_inside(logs, name, _READ_BYTES)), words)
                evidence = EvidenceFile(file.name, text, keep_end=True)
                content, _ = fit(evidence, min(bytes_left, _FILE_BYTES))
                bytes_left -= len(content)
                if content:
                    archive.writestr(undated_entry(f"logs/{name}"), content, zipfile.ZIP_DEFLATED)
    except (FileNotFoundError, NotADirectoryError, PermissionError, IsADirectoryError) as error:
        raise _unwritten(path, error) from error
    except OSError as error:
        raise InfraError(f"cannot write {path}: {error.strerror or error}") from error


def read_archive(path: Path) -> DoctorReport:
    """Return the report in an archive of `acceptance run`. Raises ConfigError."""
    try:
        with (
            open_regular(path) as file,
            open_archive(file, _LIMITS) as opened,
            opened.open(REPORT) as report,
        ):
            data = report.read(_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}", file=path) from None
    except (KeyError, ArchiveError) as error:
        why = f"it has no {REPORT}" if isinstance(error, KeyError) else error
        raise ConfigError(f"is not an archive of `acceptance run`: {why}", file=path) from None
    if len(data) > _FILE_BYTES:
        raise ConfigError(f"its {REPORT} is larger than {_FILE_BYTES} bytes", file=path)
    try:
        return parse_model(TypeAdapter(DoctorReport), data)
    except ValueError as error:
        problem = f"its {REPORT} is not a report of `doctor`: {problem_in(error)}"
        raise ConfigError(problem, file=path) from None


def markdown_row(report: DoctorReport) -> str:
    """Return a row of a Markdown table with `COLUMNS` (pure)."""
    steps = [check for check in report.checks if check.group == "acceptance"]
    good = [check.name for check in steps if check.status == "ok"]
    bad = [check for check in steps if check.status in ("warn", "fail", "unknown")]
    cells = (
        _check_text(report, "SoC"),
        _check_text(report, "system"),
        _check_text(report, "runtime"),
        f"{counted(len(good), 'step')}: {'; '.join(good)}" if good else "none",
        "; ".join(f"{check.name}: {check.found}"[:_CELL_CHARS] for check in bad) or "-",
    )
    return f"| {' | '.join(map(_cell, cells))} |"


def _check_text(report: DoctorReport, name: str) -> str:
    checks: list[Checked] = [
        check for check in report.checks if (check.group, check.name) == ("device", name)
    ]
    return checks[0].found if checks else "unknown"


def _cell(text: str) -> str:
    cell = "".join(char if char.isprintable() else " " for char in text)
    for mark in "\\|<>`*_[]":
        cell = cell.replace(mark, f"\\{mark}")
    return cell
