"""What to ask where several causes fit a log: the command whose output tells them apart (data).

The output is read as one more log; rules know its lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from harness.verdict.failure.explanation import Explained


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
"""On a Linux board they are the same without `adb`; for logcat there take `journalctl -b`."""


def question(causes: Sequence[Explained], known_files: int = 0) -> TellingCommand | None:
    """What to ask about the causes of a log, the answer first; None where a line states it.

    Asked is what is told of most of the equally sure ones. `known_files`: so many answers are
    there already, so the next best is asked.
    """
    if not causes or causes[0].confidence == "known":
        return None
    first = causes[0]
    equal = {
        one.id
        for one in causes
        if (one.confidence, one.failure) == (first.confidence, first.failure)
    }
    fitting = [one for one in QUESTIONS if one.tells & equal]
    fitting.sort(key=lambda one: -len(one.tells & equal))
    return fitting[known_files] if known_files < len(fitting) else None
