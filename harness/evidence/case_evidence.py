"""What a device can tell about a case that failed, crashed or hung, from the case's own time.

Passing cases pay nothing for it: a case's beginning is a moment on the host's clock. When it has
gone wrong, the device is asked for its own clocks along with its logs, and counts back from there.
So a clock may be wrong or drift. What has to be compared with something earlier (has it booted
since, did its clock jump, what was its DSP doing) is compared with a baseline, taken once for many
cases.
"""

from __future__ import annotations

import contextlib
import json
import math
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from harness.core.deadline import Deadline
from harness.core.errors import DeviceError, InfraError
from harness.core.names_inside import create_inside, name_problem
from harness.core.outgoing_text import without_secrets, without_secrets_in
from harness.core.platform import boot_clock_s
from harness.dsp.dsp import log_end, log_size
from harness.evidence.answers import (
    MARGIN_S,
    Baseline,
    Report,
    baseline_of,
    collect_script,
    look_script,
    state_script,
)
from harness.evidence.text import EvidenceFile, clean, fit, redact
from harness.transport.device import Transport
from harness.transport.questions import Section, split_sections
from harness.transport.shell import END_GRACE_S, ScriptTimeout

SUMMARY: Final = "evidence.json"
_STATE_BYTES: Final = 64 << 10
_TELLING: Final = ("dsp.", "avc.", "dmesg.", "logcat-")
_MAX_TELLING_LINES: Final = 200
_MAX_NOTES: Final = 200
_MAX_NOTE_CHARS: Final = 500


@dataclass(frozen=True)
class EvidenceLimits:
    """Bounds of what is kept for one case; what does not fit is cut, and the file says so."""

    file_bytes: int = 1 << 20
    total_bytes: int = 8 << 20
    tombstones: int = 4


@dataclass(frozen=True)
class Gathered:
    """What was kept: names in the folder, what was missing and why, and a baseline from now on.

    `lost` says how the device was lost while it was asked, None if it was not.
    """

    files: tuple[str, ...]
    notes: tuple[str, ...]
    baseline: Baseline | None
    lost: str | None


def take_baseline(device: Transport, *, timeout_s: float) -> Baseline:
    """Asks a device what it is like, in one round trip. Raises DeviceError."""
    token = secrets.token_hex(8)
    answer = device.shell(
        state_script(token),
        timeout_s=timeout_s,
        max_output_bytes=_STATE_BYTES,
        doing="ask for its clock",
    )
    baseline = baseline_of(split_sections(answer.stdout, token))
    if baseline is None:
        raise DeviceError(
            "it does not tell its clock and uptime", serial=device.serial, output=answer.stdout
        )
    return baseline


@dataclass
class CaseEvidence:
    """The evidence of one case, which begins when this is made.

    `look` takes a hung process's stacks while it is there (`on_hang` of `run_plan`); `collect`
    asks for everything else once the case has gone wrong, and writes it all down. Neither raises
    because of a device that is gone or does not permit something: what is missing is noted.
    `dsp` is the folder on this computer of a simulated DSP.
    """

    device: Transport
    baseline: Baseline | None = None
    limits: EvidenceLimits = EvidenceLimits()
    dsp: Path | None = None
    _began_s: float = field(default_factory=boot_clock_s, init=False)
    _notes: list[str] = field(default_factory=list, init=False)
    _process: dict[str, Section] = field(default_factory=dict, init=False)
    _pid: int | None = field(default=None, init=False)
    _lost: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._logged = 0 if self.dsp is None else log_size(self.dsp)

    def look(self, pid: int, deadline: Deadline) -> None:
        """Takes the state and the stacks of a process that hangs, and ends it."""
        token = secrets.token_hex(8)
        self._pid = pid
        timeout_s = _leaving_time_to_end(deadline)
        # a debugger that takes longer leaves some of the time to the rest
        script = look_script(
            token, pid, file_bytes=self.limits.file_bytes, seconds=max(1.0, timeout_s - 0.5)
        )
        self._process = split_sections(self._ask(script, timeout_s, sections=6), token)
        if not self._process:
            self._note(f"process {pid} could not be looked at before it ended")

    def collect(self, folder: Path, *, deadline: Deadline) -> Gathered:
        """Asks for everything from the case's own time, in one round trip, and writes it down.

        The whole takes no longer than `deadline`, but for what a slow disk takes.
        """
        began = time.monotonic()
        last_s = math.ceil(boot_clock_s() - self._began_s) + MARGIN_S
        token = secrets.token_hex(8)
        script = collect_script(
            token,
            last_s=last_s,
            boot_epoch_s=None if self.baseline is None else self.baseline.boot_epoch_s,
            file_bytes=self.limits.file_bytes,
            tombstones=self.limits.tombstones,
        )
        answer = self._ask(
            script, _leaving_time_to_end(deadline), sections=5 + self.limits.tombstones
        )
        sections = split_sections(answer, token)
        if not sections:
            self._note("the device answered nothing")
        report = Report(self._note, self.baseline, last_s, self.limits.file_bytes)
        report.read(sections)
        if self._pid is not None:
            report.read_process(self._pid, self._process)
        baseline, facts = baseline_of(sections), report.facts
        facts["took_s"] = round(time.monotonic() - began, 3)
        written = self._write(folder, [*self._of_dsp(), *report.files()], facts)
        return Gathered(written, tuple(self._notes), baseline, self._lost)

    def _of_dsp(self) -> list[EvidenceFile]:
        """The end of what a simulated DSP has logged since the case began."""
        if self.dsp is None:
            return []
        try:
            end, cut = log_end(self.dsp, self._logged, self.limits.file_bytes)
        except OSError as error:
            self._note(f"the log of the simulated DSP cannot be read: {error.strerror}")
            return []
        return [EvidenceFile("simulated-dsp.txt", clean(end), keep_end=True, cut=cut)]

    def _note(self, text: str) -> None:
        if len(self._notes) < _MAX_NOTES:
            self._notes.append(redact(without_secrets(clean(text.encode())))[:_MAX_NOTE_CHARS])

    def _ask(self, script: str, timeout_s: float, *, sections: int) -> bytes:
        answer = bytearray()
        most = (sections + 1) * (self.limits.file_bytes + 4096) + (2 << 20)
        try:
            done = self.device.shell(
                script,
                timeout_s=timeout_s,
                on_stdout=answer.extend,
                max_output_bytes=most,
                doing="ask for evidence",
                collect=False,
            )
            if done.truncated:
                self._note(f"the device wrote more than {most} bytes and was stopped")
        except InfraError as error:
            problem = error.problem if isinstance(error, DeviceError) else str(error)
            self._note(f"the device did not tell everything: {problem}")
            # a script that was found running was too slow; the device was not out of reach
            if not (isinstance(error, ScriptTimeout) and error.processes.states):
                self._lost = self._lost or self._notes[-1]
        return bytes(answer)

    def _write(
        self, folder: Path, files: list[EvidenceFile], facts: dict[str, object]
    ) -> tuple[str, ...]:
        written: dict[str, object] = {}
        left = self.limits.total_bytes
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for file in files:
                if not file.text.strip():
                    continue
                content, cut = fit(file, min(left, self.limits.file_bytes))
                if cut:
                    self._note(f"{file.name}: cut, it would have been larger than allowed")
                if content and (problem := name_problem(file.name)):
                    self._note(f"a file that the device named {problem}: {file.name[:100]!r}")
                elif content:
                    with create_inside(folder, file.name, replace=True) as stream:
                        stream.write(content)
                    written[file.name] = {"bytes": len(content), "cut": cut}
                    left -= len(content)
            summary = {
                "schema": 1,
                **facts,
                "files": written,
                "notes": self._notes,
                "lost": self._lost,
            }
            text = json.dumps(without_secrets_in(summary), indent=1, ensure_ascii=True) + "\n"
            (folder / SUMMARY).write_text(text, encoding="ascii")
            return (*written, SUMMARY)
        except OSError as error:
            self._note(f"not everything could be written: {error}")
            return tuple(written)


def telling_lines(folder: Path, names: Sequence[str]) -> tuple[str, ...]:
    """The lines of the logs that were written: of each that may tell a cause, the last ones."""
    lines: list[str] = []
    for name in names:
        if name.startswith(_TELLING):
            with contextlib.suppress(OSError):
                text = (folder / name).read_text("utf-8", "replace")
                lines += text.splitlines()[-_MAX_TELLING_LINES:]
    return tuple(lines)


def _leaving_time_to_end(deadline: Deadline) -> float:
    left_s = deadline.remaining()
    return max(left_s / 4, left_s - END_GRACE_S)
