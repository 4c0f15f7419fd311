"""Evidence from a device for a case that failed, crashed or hung, limited to the case's time.

Passing cases cost nothing: only the start on the host's clock is noted. After a failure the device
is asked for its clocks along with its logs, and counts back from there, so a clock may be wrong or
drift. Reboots, jumps of the clock and changes of the DSP's state are found by comparison with a
baseline, taken once for many cases.
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
from harness.core.linux_processes import boot_clock_s
from harness.core.outgoing_text import without_secrets, without_secrets_in
from harness.core.paths_inside import create_inside, name_problem
from harness.dsp.replies import log_end, log_size
from harness.evidence.device_replies import (
    MARGIN_S,
    Baseline,
    Report,
    baseline_of,
    collect_script,
    look_script,
    state_script,
)
from harness.evidence.redaction import EvidenceFile, clean, fit, redact
from harness.transport.device import Transport
from harness.transport.device_queries import Section, split_sections
from harness.transport.shell import END_GRACE_S, ScriptTimeout

SUMMARY: Final = "evidence.json"
_STATE_BYTES: Final = 64 << 10
_TELLING: Final = ("dsp.", "avc.", "dmesg.", "logcat-")
_MAX_TELLING_LINES: Final = 500
_MAX_NOTES: Final = 200
_MAX_NOTE_CHARS: Final = 500


@dataclass(frozen=True)
class EvidenceLimits:
    """Limits of the evidence for one case; a file that exceeds them is cut, and says so."""

    file_bytes: int = 1 << 20
    total_bytes: int = 8 << 20
    tombstones: int = 4


@dataclass(frozen=True)
class CollectedEvidence:
    """The collected files by name, notes on missing parts, and a new baseline.

    `lost` says how the device was lost meanwhile, None if it was not.
    """

    files: tuple[str, ...]
    notes: tuple[str, ...]
    baseline: Baseline | None
    lost: str | None


def take_baseline(device: Transport, *, timeout_s: float) -> Baseline:
    """Ask a device for its baseline, in one round trip. Raises DeviceError."""
    token = secrets.token_hex(8)
    answer = device.shell(
        state_script(token),
        timeout_s=timeout_s,
        max_output_bytes=_STATE_BYTES,
        doing="read its clock",
    )
    baseline = baseline_of(split_sections(answer.stdout, token))
    if baseline is None:
        raise DeviceError(
            "the device does not report its clock and uptime",
            serial=device.serial,
            output=answer.stdout,
        )
    return baseline


@dataclass
class CaseEvidence:
    """The evidence of one case, which begins when this object is created.

    `look` reads a hung process's stacks while it exists (`on_hang` of `run_plan`); `collect` asks
    for everything else after a failure, and writes all of it. Neither raises because a device is
    gone or denies permission: missing parts are noted. `dsp` is the folder on this computer of a
    simulated DSP.
    """

    device: Transport
    baseline: Baseline | None = None
    limits: EvidenceLimits = EvidenceLimits()
    dsp: Path | None = None
    _started_s: float = field(default_factory=boot_clock_s, init=False)
    _notes: list[str] = field(default_factory=list, init=False)
    _process: dict[str, Section] = field(default_factory=dict, init=False)
    _pid: int | None = field(default=None, init=False)
    _lost: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._logged = 0 if self.dsp is None else log_size(self.dsp)

    def look(self, pid: int, deadline: Deadline) -> None:
        """Read the state and the stacks of a hung process, and end it."""
        token = secrets.token_hex(8)
        self._pid = pid
        timeout_s = _leaving_time_to_end(deadline)
        # a slow debugger must leave some time for the rest
        script = look_script(
            token, pid, file_bytes=self.limits.file_bytes, seconds=max(1.0, timeout_s - 0.5)
        )
        self._process = split_sections(self._run(script, timeout_s, sections=5), token)
        if not self._process:
            self._note(f"process {pid} could not be inspected before it ended")

    def collect(
        self, folder: Path, *, deadline: Deadline, more: Sequence[EvidenceFile] = ()
    ) -> CollectedEvidence:
        """Ask for everything from the case's time, in one round trip, and write it to `folder`.

        `more` is written first. Takes no longer than `deadline`, except for a slow disk.
        """
        start = time.monotonic()
        last_s = math.ceil(boot_clock_s() - self._started_s) + MARGIN_S
        token = secrets.token_hex(8)
        script = collect_script(
            token,
            last_s=last_s,
            boot_epoch_s=None if self.baseline is None else self.baseline.boot_epoch_s,
            file_bytes=self.limits.file_bytes,
            tombstones=self.limits.tombstones,
        )
        answer = self._run(
            script, _leaving_time_to_end(deadline), sections=4 + self.limits.tombstones
        )
        sections = split_sections(answer, token)
        if not sections:
            self._note("the device gave no answer")
        report = Report(self._note, self.baseline, last_s, self.limits.file_bytes)
        report.read(sections)
        if self._pid is not None:
            report.read_process(self._pid, self._process)
        baseline, facts = baseline_of(sections), report.facts
        facts["took_s"] = round(time.monotonic() - start, 3)
        written = self._write(folder, [*more, *self._of_dsp(), *report.files()], facts)
        return CollectedEvidence(written, tuple(self._notes), baseline, self._lost)

    def _of_dsp(self) -> list[EvidenceFile]:
        """Return the end of a simulated DSP's log since the case began."""
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

    def _run(self, script: str, timeout_s: float, *, sections: int) -> bytes:
        answer = bytearray()
        most = (sections + 1) * (self.limits.file_bytes + 4096) + (2 << 20)
        try:
            completed = self.device.shell(
                script,
                timeout_s=timeout_s,
                on_stdout=answer.extend,
                max_output_bytes=most,
                doing="collect logs",
                collect=False,
            )
            if completed.truncated:
                self._note(f"the device wrote more than {most} bytes and was stopped")
        except InfraError as error:
            problem = error.problem if isinstance(error, DeviceError) else str(error)
            self._note(f"the device did not answer completely: {problem}")
            # if the script was still running, it was too slow; the device was not out of reach
            if not (isinstance(error, ScriptTimeout) and error.processes.states):
                self._lost = self._lost or self._notes[-1]
        return bytes(answer)

    def _write(
        self, folder: Path, files: list[EvidenceFile], facts: dict[str, object]
    ) -> tuple[str, ...]:
        written: dict[str, object] = {}
        remaining = self.limits.total_bytes
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for file in files:
                if not file.text.strip():
                    continue
                content, cut = fit(file, min(remaining, self.limits.file_bytes))
                if cut:
                    self._note(f"{file.name} was truncated: it is larger than allowed")
                if content and (problem := name_problem(file.name)):
                    self._note(f"a file of the device {problem}: {file.name[:100]!r}")
                elif content:
                    with create_inside(folder, file.name, replace=True) as stream:
                        stream.write(content)
                    written[file.name] = {"bytes": len(content), "cut": cut}
                    remaining -= len(content)
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
            self._note(f"some files could not be written: {error}")
            return tuple(written)


def telling_lines(folder: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Return the last lines of each written log that may show a cause."""
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
