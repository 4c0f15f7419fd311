"""An acceptance as one file to be sent to somebody: redacted, bounded, whole or not there."""

from __future__ import annotations

import getpass
import json
import os
import re
import socket
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from harness.artefacts.bundle import undated_entry
from harness.doctor.check import DoctorReport
from harness.errors import ConfigError, InfraError
from harness.errors.outgoing_text import without_secrets
from harness.evidence.text import EvidenceFile, clean, fit, redact
from harness.files.whole_file import read_bounded, written_whole

_FILE_BYTES: Final = 1 << 20
_TOTAL_BYTES: Final = 32 << 20
_READ_BYTES: Final = 64 << 20
_LEAST_CHARS: Final = 3
# names that say nothing of who somebody is, and would be taken out of every second line
_NOBODY: Final = frozenset({"root", "user", "localhost", "/", "/root"})
_README: Final = """What `qnn-harness doctor --acceptance` found of one device.

report.txt   each thing that was looked at, each step, and what to do
report.json  the same for programs
logs/        what the steps were told and answered, and what the device had to say of them

Taken out: serial numbers, names of this computer and its user, folders, accounts, e-mail
addresses, Wi-Fi names, MACs, phone numbers. Look through it before you send it all the same.
"""


def own_words(serials: Iterable[str], cache: Path) -> dict[str, str]:
    """What is to be taken out besides what looks like it, and what stands there instead."""
    words = dict.fromkeys(serials, "<serial>")
    words |= {str(cache): "<cache>", str(Path.cwd()): "<folder>", str(Path.home()): "<home>"}
    words[socket.gethostname()] = "<host>"
    try:
        words[getpass.getuser()] = "<user>"
    except (KeyError, OSError):  # an account without a name
        words[str(os.getuid())] = "<user>"
    return {
        word: instead
        for word, instead in words.items()
        if len(word) >= _LEAST_CHARS and word not in _NOBODY
    }


def without(text: str, words: Mapping[str, str]) -> str:
    """`text` without these words, where they stand for themselves, and without what looks private.

    The longest come first: one may be part of another (pure).
    """
    text = redact(without_secrets(text))
    if not words:
        return text
    either = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
    return re.sub(rf"(?<![\w-])(?:{either})(?![\w-])", lambda one: words[one[0]], text)


def write_archive(
    path: Path, report: DoctorReport, shown: str, logs: Path, words: Mapping[str, str]
) -> None:
    """Packs a report, as JSON and as it was `shown`, with all files below `logs`.

    Raises ConfigError for a path that cannot be written, InfraError.
    """
    told = json.dumps(_within(report.as_json(), words), indent=1)
    texts = {"README.txt": _README, "report.txt": without(shown, words), "report.json": told}
    try:
        with (
            written_whole(path) as stream,
            zipfile.ZipFile(stream, "w") as archive,
        ):
            for name, text in texts.items():
                archive.writestr(undated_entry(name), text, zipfile.ZIP_DEFLATED)
            left = _TOTAL_BYTES
            for file in sorted(one for one in logs.rglob("*") if one.is_file()):
                text = without(clean(read_bounded(file, _READ_BYTES)), words)
                kept = EvidenceFile(file.name, text, keep_end=True)
                content, _ = fit(kept, min(left, _FILE_BYTES))
                left -= len(content)
                if content:
                    entry = undated_entry(f"logs/{file.relative_to(logs)}")
                    archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    except (FileNotFoundError, NotADirectoryError, PermissionError, IsADirectoryError) as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=path) from error
    except OSError as error:
        raise InfraError(f"cannot write {path}: {error.strerror or error}") from error


def _within(value: Any, words: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return without(value, words)
    if isinstance(value, dict):
        return {key: _within(item, words) for key, item in value.items()}
    return [_within(item, words) for item in value] if isinstance(value, list | tuple) else value
