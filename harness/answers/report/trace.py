"""A run as a timeline: trace.json, in Chrome's trace-event format, which ui.perfetto.dev opens.

Each device is a process. In it are threads for cases, the probe's steps, pushes, profiled ops and
what else happened to the device, and counters for the probe's memory and the temperature.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from harness.answers.report.document import shortened
from harness.answers.report.run_data import RunData
from harness.answers.report.summary import part_of
from harness.contexts.context.metadata import entries
from harness.ground.errors.outgoing_text import outgoing
from harness.ground.files.names_inside import read_inside
from harness.ground.files.whole_file import write_whole
from harness.verdict.results.coverage import Coverage
from harness.verdict.results.journal import MAX_VALUES
from harness.verdict.results.json_value import more_values_than
from harness.verdict.results.record import CaseRecord, DeviceEvent, is_figure

TRACE: Final = "trace.json"
_MAX_LOG_BYTES: Final = 16 << 20
_MAX_STEPS: Final = 500_000
_CHARS: Final = 300
_CASES, _DEVICE, _PUSHES, _STEPS, _OPS = 1, 2, 3, 4, 100_000
_MOST_US: Final = 10**15

ReadLog = Callable[[str], bytes | None]
Json = dict[str, Any]


def trace_of(
    records: Sequence[CaseRecord],
    events: Sequence[DeviceEvent],
    coverage: Coverage,
    read_log: ReadLog,
) -> Json:
    """The trace, of all attempts (pure); `read_log` gives a log by its path in the run's folder.

    Times are microseconds since the first of all moments. A device's own clock counts where it
    agrees with the case's time; else its first step begins with the case.
    """
    moments = [*(one.started for one in records), *(one.started for one in events)]
    made = _Trace(min(moments, default=None))
    for event in events:
        made.add_event(event)
    for record in records:
        made.add_case(record, read_log)
    return {
        "displayTimeUnit": "ms",
        "otherData": {
            "coverage": coverage.headline,
            "began": str(made.began or ""),
            "steps_left_out": made.left_out,
        },
        # what is inside of another stands behind it
        "traceEvents": [
            *made.names(),
            *sorted(made.found, key=lambda one: (one["ts"], -one.get("dur", 0))),
        ],
    }


def write_trace(run: RunData, path: Path) -> None:
    """Writes it, with the steps of the logs that are in the run's folder. Raises OSError."""

    def read_log(name: str) -> bytes | None:
        try:
            return read_inside(path.parent, name, _MAX_LOG_BYTES)
        except OSError:
            return None

    made = trace_of(run.contents.records, run.contents.events, run.coverage, read_log)
    write_whole(path, json.dumps(made, separators=(",", ":")).encode())


class _Trace:
    def __init__(self, began: datetime | None) -> None:
        self.began = began
        self.found: list[Json] = []
        self.left_out = 0
        self._steps = 0
        self._processes: dict[str, int] = {}
        self._threads: dict[tuple[int, int], str] = {}

    def add_event(self, event: DeviceEvent) -> None:
        """What happened to a device, or was sent to it."""
        pid, at = self._process(event.device), self._us(event.started)
        took = round(event.duration_s * 1e6)
        told: Json = {"detail": event.detail, "state": event.state}
        if event.event == "push":
            told["bytes"] = event.pushed_bytes
            self._add(pid, _PUSHES, "pushes", event.detail, at, took, told)
        else:
            self._add(pid, _DEVICE, "device", f"{event.event}: {event.state}", at, took, told)
        self._count(pid, "temperature", at, "celsius", (event.vitals or {}).get("hottest_c"))

    def add_case(self, record: CaseRecord, read_log: ReadLog) -> None:
        """One attempt, and what its processes did."""
        pid = self._process(record.device.name if record.device else "no device")
        at, took = self._us(record.started), round(record.duration_s * 1e6)
        error = record.error
        told: Json = {"case": record.case, "outcome": record.outcome, "attempt": record.attempt}
        told |= {"cause": record.cause, "axes": json.dumps(record.axes)}
        if error is not None:
            told |= {"api": error.api, "code": error.code, "signature": error.signature}
        name = record.case.rpartition("::")[2]
        self._add(pid, _CASES, "cases", f"{name} ({record.outcome})", at, took, told)
        self._count(pid, "temperature", at, "celsius", part_of(record, "gate").get("hottest_c"))
        self._add_ops(pid, part_of(record, "profile"), at)
        self._add_probes(
            pid, [one for one in record.logs if one.endswith(".jsonl")], read_log, at, took
        )

    def _add_ops(self, pid: int, profile: Mapping[str, Any], at: int) -> None:
        """The ops of a profiled execution, one behind the other from where its case begins.

        Microseconds are that of the library; cycles take their part of the accelerator's time.
        """
        told = [one for one in entries(profile, "events") if one.get("unit") == "us"]
        times = (one.get("value") for one in told if str(one.get("name")).startswith("Accel"))
        whole = _whole(next(times, None)) or 0
        for one in entries(profile, "ops"):
            share, us = one.get("share"), _whole(one.get("us"))
            took = us if us is not None else round(whole * share) if is_figure(share) else 0
            said = {key: one.get(key) for key in ("source", "cycles", "us", "share", "graph")}
            self._add(pid, _OPS, "ops", str(one.get("op")), at, took, said)
            at += took

    def _add_probes(
        self, pid: int, logs: Sequence[str], read_log: ReadLog, at: int, took: int
    ) -> None:
        # of each log one event is held, and each is read again when it is its turn
        first = {one: next(_events(read_log(one)), None) for one in logs}
        clocks = {one: self._clock(event) for one, event in first.items() if event is not None}
        known = [clock for clock in clocks.values() if clock is not None]
        off = 0
        if known and not at <= min(known) <= at + took:
            off = at - min(known)
        for number, (log, clock) in enumerate(clocks.items()):
            began = at if clock is None else clock + off
            self._add_steps(pid, number, _events(read_log(log)), began, max(at + took, began))

    def _clock(self, first: Json) -> int | None:
        """When a probe started by its device's clock, in the trace's time."""
        said = _whole(first.get("time_us"))
        if first.get("event") != "start" or said is None or self.began is None:
            return None
        return said - round(self.began.timestamp() * 1e6)

    def _add_steps(
        self, pid: int, number: int, events: Iterator[Json], began: int, end: int
    ) -> None:
        tid, thread = _STEPS + number, f"steps {number + 1}" if number else "steps"
        under_way: Json | None = None
        last = began
        for event in events:
            t_us, kind = _whole(event.get("t_us")), event.get("event")
            if t_us is None or kind not in ("begin", "end"):
                continue
            last = max(last, began + t_us)
            if kind == "begin":
                under_way = {**event, "at": last}
            elif under_way is not None and under_way.get("step") == event.get("step"):
                told = {key: under_way.get(key) for key in ("step", "api", "context")}
                told |= {"code": event.get("code"), "error": event.get("error")}
                self._add_step(pid, tid, thread, under_way, last, told)
                rss = event.get("rss_after_bytes")
                self._count(pid, f"memory of {thread}", last, "rss_bytes", rss)
                under_way = None
        if under_way is not None:
            self._add_step(pid, tid, thread, under_way, max(end, last), {"ended": False})

    def _add_step(self, pid: int, tid: int, thread: str, begin: Json, end: int, told: Json) -> None:
        if self._steps >= _MAX_STEPS:
            self.left_out += 1
            return
        self._steps += 1
        name = str(begin.get("verb")) + ("" if "ended" not in told else " (did not end)")
        self._add(pid, tid, thread, name, begin["at"], end - begin["at"], told)

    def names(self) -> Iterator[Json]:
        """What processes and threads are called, and in which order they stand."""
        for device, pid in self._processes.items():
            yield _meta("process_name", pid, 0, name=_text(device))
            yield _meta("process_sort_index", pid, 0, sort_index=pid)
        for (pid, tid), name in sorted(self._threads.items()):
            yield _meta("thread_name", pid, tid, name=name)
            yield _meta("thread_sort_index", pid, tid, sort_index=tid)

    def _process(self, device: str) -> int:
        return self._processes.setdefault(device, len(self._processes) + 1)

    def _us(self, moment: datetime) -> int:
        return round((moment - self.began).total_seconds() * 1e6) if self.began else 0

    def _add(
        self, pid: int, tid: int, thread: str, name: str, at: int, took: int, told: Json
    ) -> None:
        self._threads.setdefault((pid, tid), thread)
        args = {k: _text(v) if isinstance(v, str) else v for k, v in told.items() if v is not None}
        self.found.append(
            {"ph": "X", "name": _text(name), "cat": thread.partition(" ")[0], "pid": pid}
            | {"tid": tid, "ts": at, "dur": max(0, took), "args": args}
        )

    def _count(self, pid: int, name: str, at: int, unit: str, value: object) -> None:
        if is_figure(value):
            self.found.append(
                {"ph": "C", "name": name, "pid": pid, "tid": 0, "ts": at} | {"args": {unit: value}}
            )


def _events(log: bytes | None) -> Iterator[Json]:
    """The objects in a probe's log, whatever else there is."""
    for line in io.BytesIO(log or b""):
        if not line.lstrip(b"\x1e").startswith(b"{") or more_values_than(MAX_VALUES, line):
            continue
        try:
            event = json.loads(line.lstrip(b"\x1e"))
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            yield event


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and 0 <= value < 4 * _MOST_US else None


def _text(text: str) -> str:
    return shortened(outgoing(text[: 8 * _CHARS]), _CHARS)


def _meta(kind: str, pid: int, tid: int, **args: object) -> Json:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "ts": 0, "args": args}
