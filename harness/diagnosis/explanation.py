"""What any log tells of its failures: the same table as for our own records (pure).

The output is read as one more log; rules know its lines.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import inf
from typing import Final

from harness.core.codes import describe, dsp_errors, qnn_code_in
from harness.core.schema_field import Schema1
from harness.core.socs import Claim, claim_of, limits_of_simulation
from harness.diagnosis.any_log import (
    ANYBODYS,
    API,
    CALLS,
    CAME_TRUE,
    CLIENT,
    FORESEEN,
    KERNEL,
    MAX_LINES,
    OURS,
    LogText,
)
from harness.diagnosis.chain import is_benign, link_of
from harness.diagnosis.error import Confidence, Part
from harness.diagnosis.rule import CONFIDENCES, FittingRule, Rule, Symptoms, findings
from harness.diagnosis.rules import RULES

MAX_SHOWN: Final = 8
_MAX_CLIENTS: Final = 4
_NEAR_S: Final = 60.0
"""What is logged longer before or after a process's lines is not about them."""
_NEAR_LINES: Final = 100
# A number beside such a call is FastRPC's own, though QNN may have one that is the same.
_FASTRPC: Final = re.compile(r"\b(?:remote_handle\w*|fastrpc_\w+|apps_dev_init) failed\b")

# What a summary of ours says behind a finding, and in the place of one that the failure repeats.
_BEHIND: Final = re.compile(rf"^{CAME_TRUE}.*|( \(and \d+ more like it\))?\s+\[then: .*")


_SIMULATOR: Final = re.compile(
    r"\bx86_64-linux-clang/|/simulated/\.runs/|\bsimulated on this computer\b"
)
_BOARD: Final = re.compile(r"libQnnHtpV\d+Stub\.so|cdsprpc")
"""What a simulator in libQnnHtp.so itself does without."""


class ExplainedLine(Part):
    """A line of the log, counted from 1, that shows a cause; `file`: of a log beside it."""

    number: int
    text: str
    file: str | None = None


class Explained(Part):
    """One cause that fits a log, and the lines that show it; of which process, if that is told.

    Causes of one `failure` belong together, the answer first; a log may have several, from 1 on.
    """

    id: str
    confidence: Confidence
    words: str
    fix: str | None
    threads: tuple[str, ...]
    lines: tuple[ExplainedLine, ...]
    process: int | None = None
    failure: int = 1


class Explanation(Part):
    """All causes that fit a log, the answer first; none where nothing is recognised.

    `limits` says what they leave open where the log is of a simulator.
    """

    schema_number: Schema1 = 1
    diagnoses: tuple[Explained, ...]
    limits: str | None = None


def explain(lines: Sequence[LogText], rules: Sequence[Rule] = RULES) -> Explanation:
    """The causes that fit a log, as sure as its lines make them."""
    return explained_by(symptoms_in(lines), lines, rules)


def explained_by(
    symptoms: Symptoms, lines: Sequence[LogText], rules: Sequence[Rule] = RULES
) -> Explanation:
    """The causes that fit these symptoms, which are those of the lines."""
    whole = _told(symptoms, lines, rules)
    fitting = {one.id for one in whole}
    # what does not fit all lines fits no part of them, unless a line elsewhere spoke against it
    left = [one for one in rules if one.id in fitting or any(sign.absent for sign in one.signs)]
    times = _times(lines)
    parts = [
        told
        for process, some in _apart(lines).items()
        for told in _in_time(_told(symptoms_in(some, process), some, left, process), times)
    ]
    parts = parts or _in_time(whole, times)
    parts.sort(key=lambda told: CONFIDENCES.index(told[0].confidence))
    causes: list[Explained] = []
    for told in filter(None, (*parts, whole)):
        known = {one.id: one.failure for one in causes}
        shown = {(one.id, one.lines): one.failure for one in causes}
        failure = shown.get((told[0].id, told[0].lines), 1 + max(known.values(), default=0))
        # the answer of each process is told, though it be the same, if its lines are others
        again = told[:1] if failure not in known.values() and told is not whole else []
        new = [*again, *(one for one in told if one.id not in known and one not in again)]
        failure = 1 if told is whole else failure
        causes += [one.model_copy(update={"failure": failure}) for one in new]
    causes.sort(key=lambda one: one.failure)
    limits = limits_in(symptoms, lines) if causes else None
    return Explanation(diagnoses=tuple(causes), limits=limits)


def limits_in(symptoms: Symptoms, lines: Sequence[LogText]) -> str | None:
    """What a log leaves open that is of a simulator, as a path or our own words tell."""
    simulated, board = (
        any(pattern.search(line.text) for line in lines) for pattern in (_SIMULATOR, _BOARD)
    )
    claims = {claim_of(code) for code in symptoms.codes}
    claim: Claim = "capacity" if "capacity" in claims else "version"
    target = None if board else "linux-x64"
    return limits_of_simulation(claim, target, (), simulated=simulated)


def _times(lines: Sequence[LogText]) -> dict[int, float | None]:
    own = [line for line in lines if line.file is None]
    if any(line.origin.at is not None for line in own):
        return {line.number: line.origin.at for line in own}
    return {line.number: line.number * _NEAR_S / _NEAR_LINES for line in own}


def _in_time(told: list[Explained], times: Mapping[int, float | None]) -> list[list[Explained]]:
    """The causes of one process by failure: what a line shows long after others is another one."""
    shown = [(one, times.get(one.lines[0].number) if one.lines else None) for one in told]
    sure = [at for one, at in shown if at is not None and one.confidence != "possible"]
    begun = [at for before, at in pairwise((-inf, *sorted(sure))) if at - before > _NEAR_S]
    failures: list[list[Explained]] = [[] for _ in begun] or [[]]
    for one, at in shown:
        failures[max(0, bisect(begun, at) - 1) if at is not None else 0].append(one)
    return [failure for failure in failures if failure]


def _told(
    symptoms: Symptoms, lines: Sequence[LogText], rules: Sequence[Rule], process: int | None = None
) -> list[Explained]:
    """The causes that fit, the surest first.

    A number that stands in another program's line alone is the last of its equals. Of what lines
    of one process suggest, the earliest is the cause.
    """
    times = _times(lines)
    told = [(one, _explained(one, symptoms, lines, process)) for one in findings(symptoms, rules)]
    told.sort(
        key=lambda one: (
            CONFIDENCES.index(one[0].confidence),
            _is_foreign(*one),
            times.get(one[1].lines[0].number) or 0.0
            if process and one[0].confidence == "likely"
            else 0.0,
        )
    )
    return [explained for _, explained in told]


def _apart(lines: Sequence[LogText]) -> dict[int, list[LogText]]:
    """The lines of each process that uses the NPU, with those of nobody and of the system."""
    found = (line.origin.process for line in lines if CLIENT.search(line.text))
    clients = dict.fromkeys(one for one in found if one)
    return {
        client: [one for one in lines if one.origin.process not in clients.keys() - {client}]
        for client in [*clients][:_MAX_CLIENTS]
    }


def _near(lines: Sequence[LogText], process: int) -> list[LogText]:
    """The lines of the time of a process's; those without a time are of any."""
    own = [line.origin.at for line in lines if line.origin.process == process]
    times = [at for at in own if at is not None]
    if not times:
        return list(lines)
    first, last = min(times) - _NEAR_S, max(times) + _NEAR_S
    return [one for one in lines if one.origin.at is None or first <= one.origin.at <= last]


def dsp_numbers(symptoms: Symptoms) -> list[str]:
    """What the numbers of the DSP's runtime in a log mean, as far as they have names."""
    named = (describe(code) for code in symptoms.codes)
    told = ((info, *dsp_errors()[info.code]) for info in named if info.code in dsp_errors())
    return [
        f"{info.hex} is {name}" + (f": {meaning}" if meaning else "")
        for info, name, meaning in told
        if info.component == "dsp"
    ]


def symptoms_in(lines: Sequence[LogText], process: int | None = None) -> Symptoms:
    """What the lines of a log show: calls, codes, texts; any may be another process's.

    Numbers of a process that says nothing else of ours count for nothing, nor do those of the
    kernel, or of nobody far from what is ours. With `process`, what the system logged counts near
    the time of that process only.
    """
    clients = {line.origin.process for line in lines if CLIENT.search(line.text)}
    telling = [
        line
        for line in lines
        if not is_benign(line.text)
        and (line.origin.process in clients or not ANYBODYS.search(line.text))
    ]
    texts = tuple(dict.fromkeys(line.text for line in telling))
    near = telling if process is None else _near(telling, process)
    apis: dict[str, None] = {}
    ours: set[object] = set()
    for line in telling:
        called = [found[0] for found in API.finditer(line.text)]
        called += [api for pattern, api in CALLS if pattern.search(line.text)]
        apis |= dict.fromkeys(called)
        if called or OURS.search(line.text):
            ours |= {_place(line), _place(line, -1), _place(line, 1)}
    coded = [one.text for one in telling if _place(one) in ours]
    return Symptoms(
        outcome="",  # a call that a log names need not have failed
        apis=tuple(apis),
        codes=tuple(dict.fromkeys(code for text in coded for code in _codes_in(text))),
        said=texts,
        evidence=tuple(dict.fromkeys(line.text for line in near)),
        foreseen=tuple(
            (found[1], _BEHIND.sub("", found[2]))
            for text in texts
            if (found := FORESEEN.search(text)) is not None
        ),
    )


def _place(line: LogText, beside: int = 0) -> object:
    if line.origin.process:
        return line.origin.process
    near = 1 if line.origin.process == KERNEL else _NEAR_LINES
    return line.file, near, line.number // near + (beside if near > 1 else 0)


@lru_cache(MAX_LINES)
def _codes_in(text: str) -> tuple[int, ...]:
    """The code that a line names; asked of each line anew by each process and by each cause."""
    code = link_of(text).code
    if code is None and (named := qnn_code_in(text)) is not None:
        code = named[0]
    fastrpcs = code is not None and describe(code).component != "dsp" and _FASTRPC.search(text)
    return () if code is None or fastrpcs else (code,)


def _explained(
    found: FittingRule, symptoms: Symptoms, lines: Sequence[LogText], process: int | None
) -> Explained:
    known = found.diagnosis(symptoms.codes)
    shown = set(found.lines) or _that_name(found, lines)
    return Explained(
        id=known.id,
        confidence=found.confidence,
        words=known.words,
        fix=known.fix,
        threads=found.rule.links,
        lines=tuple(
            ExplainedLine(number=line.number, text=line.text, file=line.file)
            for line in [line for line in lines if line.text in shown][:MAX_SHOWN]
        ),
        process=process,
    )


def _is_foreign(found: FittingRule, explained: Explained) -> bool:
    by_code = not found.lines and bool(explained.lines)
    return by_code and not any(OURS.search(line.text) for line in explained.lines)


def _that_name(found: FittingRule, lines: Sequence[LogText]) -> set[str]:
    codes = {code for sign in found.rule.signs for code in sign.codes}
    return {line.text for line in lines if codes.intersection(_codes_in(line.text))}


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
