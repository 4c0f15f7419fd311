"""What to ask where several causes fit a log: the command whose output tells them apart (data).

The output is read as one more log; rules know its lines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from harness.verdict.failure.any_log import LogText
from harness.verdict.failure.explanation import Explained
from harness.verdict.failure.log_origin import KERNEL


@dataclass(frozen=True)
class TellingCommand:
    """A command, a name for the file of its output, and the causes that it confirms or refutes."""

    command: str
    file: str
    tells: frozenset[str]


def _asks(command: str, file: str, *tells: str) -> TellingCommand:
    return TellingCommand(command, file, frozenset(tells))


QUESTIONS: Final = (
    _asks(
        "adb logcat -d",
        "logcat.txt",
        *("skel-not-found", "skel-refused", "dsp-library-missing", "linker-namespace"),
        *("stub-missing", "stub-not-loaded", "no-fastrpc", "invalid-config", "not-mapped"),
        *("no-memory", "no-dsp-session", "domain-refused", "mixed-libraries"),
    ),
    _asks(
        "adb shell dmesg",
        "dmesg.txt",
        *("dsp-restarted", "pd-died", "no-dsp-session", "fastrpc-denied"),
        *("stale-handle", "failed-without-cause"),
    ),
    _asks(
        "adb shell 'for p in /sys/class/remoteproc/*; do echo $(cat $p/name) is $(cat $p/state); "
        "done'",
        "dsp.txt",
        *("no-dsp-session", "npu-busy"),
    ),
    _asks(
        "adb shell ls -lZ /dev",
        "dev.txt",
        *("fastrpc-denied", "no-channel", "no-unsigned-pd"),
    ),
    _asks(
        "env",
        "env.txt",
        *("adsp-path-colons", "older-libraries", "unknown-soc", "backend-not-loaded"),
        *("symbol-missing", "npu-driver"),
    ),
    _asks(
        "adb shell cat /proc/PID/maps",
        "maps.txt",
        *("older-libraries", "mixed-libraries", "two-copies", "unknown-dsp-arch"),
    ),
)
"""As an Android device is asked."""
_ELSEWHERE: Final = {
    "linux": {"adb logcat -d": "journalctl -b"},
    "windows": {
        "adb logcat -d": "wevtutil qe Application /c:200 /rd:true /f:text",
        "adb shell dmesg": "wevtutil qe System /c:200 /rd:true /f:text",
        "env": "set",
        "adb shell cat /proc/PID/maps": 'powershell "(ps -Id PID).Modules | select FileName"',
    },
}
"""What stands for a command elsewhere. A board with Linux is asked the rest without `adb shell`."""
_SYSTEMS: Final = (
    ("windows", re.compile(r"(?i)\.dll\b|\b[a-z]:\\|WinError|Win32|LoadLibrary")),
    (
        "android",
        re.compile(
            r"/data/(?:local|app|user|data)|/vendor/|/system/|adsprpc/src|avc: |(?i:android)"
        ),
    ),
    (
        "linux",
        re.compile(
            r"/(?:usr|home|lib|etc|root)/|\.so\.\d|^[A-Z][a-z]{2} [ \d]\d [\d:]{8} |\bkernel: "
            r"|systemd|fastrpc_test|remoteproc\d|\.\./src/|/dev/fastrpc|snd_|^\w+\.c:\d+:"
        ),
    ),
)
"""By what a log tells on which system it was written, the surest first; else on Android."""


def system_of(lines: Sequence[LogText]) -> str:
    """Where a log was written: `windows`, `android` or `linux`."""
    told = (name for name, words in _SYSTEMS if any(words.search(line.text) for line in lines))
    return next(told, "android")


def question(
    causes: Sequence[Explained], lines: Sequence[LogText] = (), known_files: int = 0
) -> TellingCommand | None:
    """What to ask about the causes of a log, the answer first; None where a line states it.

    Asked is what is told of most of the equally sure ones. `lines` are those of the log: they
    tell on which system to ask, and a log that is the kernel's or the system's own is not asked
    for again. `known_files`: so many answers are there already, so the next best is asked.
    """
    if not causes or causes[0].confidence == "known":
        return None
    first = causes[0]
    equal = {
        one.id
        for one in causes
        if (one.confidence, one.failure) == (first.confidence, first.failure)
    }
    system, held = system_of(lines), _held(lines)
    asked = (
        replace(one, command=_there(one.command, system))
        for one in QUESTIONS
        if one.file not in held
    )
    fitting = [one for one in asked if one.command and one.tells & equal]
    fitting.sort(key=lambda one: -len(one.tells & equal))
    return fitting[known_files] if known_files < len(fitting) else None


def _held(lines: Sequence[LogText]) -> set[str]:
    processes = {line.origin.process for line in lines if not line.file} - {None}
    return {"dmesg.txt" if one == KERNEL else "logcat.txt" for one in processes}


def _there(command: str, system: str) -> str:
    if system == "android" or command in _ELSEWHERE[system]:
        return _ELSEWHERE.get(system, {}).get(command, command)
    return command.removeprefix("adb shell ").strip("'") if system == "linux" else ""
