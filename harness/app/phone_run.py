"""An app run on a phone: installed, started, its log followed, and removed if it was not there.

Nothing that the phone or the app says is trusted. No phone has confirmed the words of `cmd package`
and `cmd activity` yet, which are those of AOSP's sources for Android 8 to 16.
"""

from __future__ import annotations

import re
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from typing import Any, Final, Literal

from harness.app.checks import AppFinding
from harness.core.deadline import Deadline
from harness.core.errors import ConfigError, DeviceTimeout, InfraError
from harness.core.json_record import Printout, RecordText
from harness.core.outgoing_text import one_line
from harness.diagnosis.explain_log import Explanation, explain
from harness.diagnosis.log_reader import origin_of, read_log
from harness.evidence.case_evidence import CaseEvidence, take_baseline, telling_lines
from harness.evidence.device_replies import DSP_PATTERN
from harness.evidence.redaction import EvidenceFile, clean
from harness.lab.lab_device import AttachedDevice
from harness.transport.device import Transport
from harness.transport.device_queries import shell_text
from harness.transport.files import PushItem, open_content
from harness.transport.shell import Completed

Outcome = Literal["refused", "running", "ended", "crashed", "hung", "unknown"]

END_S: Final = 10.0
"""Seconds beyond the deadline in which the app is ended and removed."""

_MAX_LOG_BYTES: Final = 32 << 20
_MAX_ANSWER_BYTES: Final = 4 << 20
_MAX_TEXT: Final = 500
_PACKAGE: Final = re.compile(r"(?=.{1,255}\Z)[A-Za-z]\w*(?:\.[A-Za-z]\w*)+", re.ASCII)
_CLASS: Final = re.compile(r"\.?[A-Za-z_$][\w$]*(?:\.[\w$]+)*", re.ASCII)
_SESSION: Final = re.compile(r"Success: created install session \[(\d{1,10})\]")
_REFUSED: Final = re.compile(r"\bINSTALL_[A-Z_]{4,60}\b")
_STARTED: Final = re.compile(r"\bStart proc (\d{1,7}):([^\s/]+)/")
_CRASH: Final = re.compile(r" AndroidRuntime: FATAL EXCEPTION| libc +: Fatal signal \d+")
_VERSION: Final = re.compile(r"^ +versionCode=(\d{1,18})\b.*\n +versionName=(.{1,100})", re.M)
_FAILURES: Final = tomllib.loads(
    files("harness.app").joinpath("install_failures.toml").read_text("ascii")
)


class AppRunReport(Printout):
    """The result of `app run`.

    `before` is the version that was there, which is kept; None if there was none. `outcome` is what
    became of the app in `watched_s`, shown by the line `sign`; `unknown` if its process was not
    found, or the phone failed (`problem`). `shown_ms` is the time until its activity was drawn.
    `findings` are a refusal of the package manager and those of app check. `files` lie in `folder`,
    `notes` say what is missing there. `is_restored`: the app was ended, and removed if it was not
    there before.
    """

    package: RecordText
    device: RecordText
    before: RecordText | None
    outcome: Outcome
    activity: RecordText | None
    shown_ms: int | None
    watched_s: float
    processes: tuple[int, ...]
    sign: RecordText | None
    explanation: Explanation
    findings: tuple[AppFinding, ...]
    folder: RecordText
    files: tuple[RecordText, ...]
    notes: tuple[RecordText, ...]
    is_restored: bool
    problem: RecordText | None

    @property
    def exit_code(self) -> int:
        """3 if the phone failed, 1 if something is wrong with the app, else 0."""
        wrong = self.outcome != "running" or bool(self.explanation.diagnoses)
        return InfraError.exit_code if self.problem else int(wrong)


def require_package(name: str) -> None:
    """Raise ConfigError for a name that no package manager takes."""
    if not _PACKAGE.fullmatch(name):
        problem = f"{name[:100]!r} in its manifest is not a valid package name"
        raise ConfigError(problem, field="FILE")


def component_of(package: str, activity: str) -> str:
    """Return the component of an activity, as in com.example/.Main. Raises ConfigError."""
    owner, slash, name = activity.rpartition("/")
    if not _CLASS.fullmatch(name) or (slash and owner != package):
        problem = f"{activity[:200]!r} is not an activity of {package}"
        raise ConfigError(problem, field="--activity", choices=[".Main", f"{package}.Main"])
    return f"{package}/{name}"


def app_lines(log: str, package: str, processes: Sequence[int]) -> tuple[list[str], list[int]]:
    """Return the lines of logcat that are of an app or about it, and the app's processes (pure).

    Besides those of its processes these are lines that name it, and dumps of its crashes.
    """
    started = (int(pid) for pid, name in _STARTED.findall(log) if name.split(":")[0] == package)
    own = dict.fromkeys([*started, *processes])
    name = re.escape(package)
    named = re.compile(rf"(?<![\w.]){name}(?!\.?\w)", re.ASCII)
    dump = re.compile(rf">>> {name}(?::\S+)? <<<")
    lines = [(line, origin_of(line).process) for line in log.split("\n")]
    wanted = {*own, *(process for line, process in lines if process and dump.search(line))}
    return [line for line, pid in lines if pid in wanted or named.search(line)], [*own]


def outcome_of(
    lines: Sequence[str], package: str, processes: Sequence[int]
) -> tuple[Outcome, str] | None:
    """Return a crash or a hang that an app's lines show, and the line that does (pure)."""
    for line in lines:
        if _CRASH.search(line) and origin_of(line).process in processes:
            return "crashed", line
        if " ActivityManager: " in line and f" ANR in {package}" in line:
            return "hung", line
    return None


def run_app(
    device: AttachedDevice,
    apks: Sequence[Path],
    package: str,
    findings: Sequence[AppFinding],
    folder: Path,
    *,
    activity: str | None,
    grant: bool,
    watch_s: float,
    timeout_s: float,
) -> AppRunReport:
    """Run an app on a phone, write the evidence into `folder`, and leave the phone as it was.

    Raises ConfigError for an activity that cannot be started, DeviceError if the phone does not
    answer at all; if it fails later, the report says so.
    """
    run = _PhoneRun(device.transport, package, Deadline(timeout_s))
    baseline = take_baseline(device.transport, timeout_s=timeout_s)
    evidence = CaseEvidence(device.transport, baseline)
    run.look()
    try:
        try:
            if run.install(apks, grant=grant):
                run.start(activity, watch_s)
        except InfraError as error:
            hint = (
                "; --timeout is the limit of all steps" if isinstance(error, DeviceTimeout) else ""
            )
            run.problem = f"{error}{hint}"
        lines, processes = app_lines(clean(bytes(run.log)), package, run.processes)
        texts = {name: clean(text.encode()) for name, text in run.answers.items()}
        texts["logcat-app.txt"] = "\n".join(lines)
        more = [EvidenceFile(name, text, keep_end=True) for name, text in texts.items()]
        collected = evidence.collect(folder, deadline=run.deadline.at_most(END_S), more=more)
    finally:
        is_restored = run.leave()
    outcome, sign = outcome_of(lines, package, processes) or (None, None)
    if run.problem or (run.shown_ms and not processes):
        outcome = outcome or "unknown"
    dmesg = telling_lines(folder, [name for name in collected.files if name == "dmesg.txt"])
    log = "\n".join([*lines, *filter(DSP_PATTERN.search, dmesg)])
    refusal = () if run.refusal is None else (run.refusal,)
    return AppRunReport(
        package=package,
        device=device.name,
        before=run.before,
        outcome="refused" if refusal else outcome or ("running" if run.is_running else "ended"),
        activity=run.component,
        shown_ms=run.shown_ms,
        watched_s=run.watched_s,
        processes=tuple(processes),
        sign=sign,
        explanation=explain(read_log(BytesIO(log.encode())).lines),
        findings=(*refusal, *findings),
        folder=str(folder),
        files=collected.files,
        notes=collected.notes,
        is_restored=is_restored,
        problem=run.problem,
    )


@dataclass
class _PhoneRun:
    """An app on a phone, under one deadline; `leave` undoes what was done, whatever that was."""

    phone: Transport
    package: str
    deadline: Deadline
    before: str | None = None
    refusal: AppFinding | None = None
    component: str | None = None
    shown_ms: int | None = None
    watched_s: float = 0.0
    is_running: bool = False
    problem: str | None = None
    processes: list[int] = field(default_factory=list)
    log: bytearray = field(default_factory=bytearray)
    answers: dict[str, str] = field(default_factory=dict)
    _undo: list[str] = field(default_factory=list)

    def look(self) -> None:
        """Find out which version is there, if any. Raises InfraError."""
        # with -u also those whose data were kept, or that only other users have
        is_there = self._is_listed(self._ask("cmd package list packages -u", "list its apps"))
        if is_there is None:
            raise InfraError(f"{self.phone.serial}: the package manager lists no apps")
        if is_there:
            version = _VERSION.search(self._ask('dumpsys package "$k"', "ask for the version"))
            self.before = f"{version[2].strip()} ({version[1]})" if version else "unknown"

    def install(self, apks: Sequence[Path], *, grant: bool) -> bool:
        """Install it, over a version that is there; return whether the phone took it."""
        size = sum(apk.stat().st_size for apk in apks)
        options = f"-r -t{' -g' if grant else ''} -S {size}"
        answer = self._ask(f"cmd package install-create {options}", "begin the installation")
        if (match := _SESSION.search(answer)) is None:
            return self._took(answer)
        self._undo.append(f"cmd package install-abandon {match[1]}")
        for number, apk in enumerate(apks):
            with open_content(PushItem(apk, "")) as content:
                words = f"-S {content.size} {match[1]} {number}.apk -"
                answer = self._ask(f"cmd package install-write {words}", "send it", content.blocks)
            if not answer.startswith("Success"):
                return self._took(answer)
        if self.before is None:
            self._undo.append('cmd package uninstall "$k"')
        took = self._took(self._ask(f"cmd package install-commit {match[1]}", "install it"))
        self._undo = self._undo[1:] if took else []
        return took

    def _took(self, answer: str) -> bool:
        self.answers["install.txt"] = answer
        if answer.startswith("Success"):
            return True
        match = _REFUSED.search(answer)
        name = match[0] if match else "INSTALL_FAILED"
        row: dict[str, Any] = next(row for key, row in _FAILURES.items() if name.startswith(key))
        explanation = f"{row['meaning']}: {one_line(answer, _MAX_TEXT)}"
        self.refusal = AppFinding(
            code=name,
            severity="error",
            evidence=(),
            explanation=explanation,
            remedy=row["fix"],
            source=None,
        )
        if row.get("phone"):
            self.problem = f"{self.phone.serial}: {row['meaning']}"
        return False

    def start(self, activity: str | None, seconds: float) -> None:
        """Start it, and follow the log until it ends, or for a time. Raises ConfigError."""
        if activity is None:
            query = "cmd package resolve-activity --brief -c android.intent.category.LAUNCHER"
            activity = self._ask(f'{query} "$k"', "find its activity").rpartition("\n")[2].strip()
            if not activity.startswith(f"{self.package}/"):
                problem = "the app has no single launcher activity; name one"
                raise ConfigError(problem, field="--activity")
        self.component = component_of(self.package, activity)
        # evidence wants some time, too
        seconds = min(seconds, self.deadline.remaining() - END_S)
        if seconds < 1:
            raise InfraError("no time is left to watch the app; raise --timeout")
        self._undo.append('cmd activity force-stop "$k"')
        words, began = bytearray(), time.monotonic()
        try:
            self._shell(
                f"c='{self.component}';n={int(seconds)}\n{shell_text('app', 'watch')}",
                doing="watch it",
                on_stdout=self.log.extend,
                on_stderr=words.extend,
                max_output_bytes=_MAX_LOG_BYTES,
                collect=False,
            )
        finally:
            self.watched_s = round(time.monotonic() - began, 1)
            text = self.answers["start.txt"] = words.decode("utf-8", "replace")
            seen = re.findall(r"^processes:((?: \d{1,7})*) *$", text, re.M)
            self.processes = [int(pid) for pids in seen for pid in pids.split()]
            self.is_running = bool(seen and seen[-1])
            if shown := re.search(r"^start: TotalTime: (\d{1,7})$", text, re.M):
                self.shown_ms = int(shown[1])
        if error := re.search(r"^start: ((?:Error|Exception|java\.)[^\0]*)", text, re.M):
            why = one_line(error[1], _MAX_TEXT)
            raise ConfigError(f"{self.component} cannot be started: {why}")
        script = 'timeout 3 dumpsys package "$k";timeout 3 dumpsys activity exit-info "$k"'
        self.answers["package.txt"] = self._ask(script, "ask why it ended")

    def leave(self) -> bool:
        """End the app, and remove it if it was not there; return whether that is certain."""
        if not self._undo:
            return True
        self.deadline = Deadline(END_S)
        script = ";".join([*reversed(self._undo), "cmd package list packages -u"])
        try:
            is_there = self._is_listed(self._ask(script, "end and remove the app"))
        except InfraError:
            return False
        return is_there == (self.before is not None)

    def _is_listed(self, answer: str) -> bool | None:
        """Return whether it is among the phone's apps, None if that is no list of all."""
        words = answer.split()
        return f"package:{self.package}" in words if "package:android" in words else None

    def _ask(self, script: str, doing: str, stdin: Any = b"") -> str:
        answer = self._shell(script, doing=doing, stdin=stdin, max_output_bytes=_MAX_ANSWER_BYTES)
        return (answer.stdout + answer.stderr).decode("utf-8", "replace").strip()

    def _shell(self, script: str, **more: Any) -> Completed:
        timeout_s = self.deadline.remaining()
        return self.phone.shell(f"k={self.package}\n{script}", timeout_s=timeout_s, **more)
