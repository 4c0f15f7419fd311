"""A run as OpenMetrics: metrics.prom, for node_exporter's textfile collector or a push (pure).

All are gauges of the last run of this lab, without timestamps. No label is the name of a case or a
run, and each has at most 50 values, so that the number of series stays bounded over a year of runs.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, Final

from harness.core.outgoing_text import outgoing
from harness.report.summary import part_of
from harness.results.coverage import Coverage
from harness.results.journal import read_once
from harness.results.record import CaseRecord, DeviceEvent, is_figure

METRICS: Final = "metrics.prom"
OTHER: Final = "other"
"""The label for all values but the most frequent ones."""
_MOST_VALUES: Final = 50
_VALUE_CHARS: Final = 100
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def metrics_text(
    cases: Iterable[CaseRecord],
    events: Sequence[DeviceEvent],
    info: Mapping[str, Any],
    coverage: Coverage,
) -> str:
    """Return the exposition, which is valid in Prometheus' older text format, too.

    `info` is run.json, which has the span of the run; if not, that of cases and events is used.
    """
    lines: list[str] = []
    families = read_once(
        cases,
        lambda cases: [*_of_run(cases, events, coverage, _span(info))],
        lambda cases: [*_of_cases(cases)],
        lambda cases: [*_of_devices(cases, events)],
    )
    for name, unit, words, names, values in chain(*families):
        full = f"qnn_harness_{name}{'_' + unit if unit else ''}"
        lines.append(f"# TYPE {full} gauge")
        lines += [f"# UNIT {full} {unit}"] if unit else []
        lines.append(f"# HELP {full} {words}")
        for key, value in _folded(values, sums=name not in _NO_SUMS):
            escaped = [text.translate(_ESCAPES) for text in key]
            labels = ",".join(f'{k}="{v}"' for k, v in zip(names, escaped, strict=True))
            lines.append(f"{full}{f'{{{labels}}}' if labels else ''} {value!r}")
    return "\n".join([*lines, "# EOF", ""])


Family = tuple[str, str, str, tuple[str, ...], Mapping[Any, float]]
"""Name, unit, help text, names of labels, and values by the values of the labels."""


def _span(info: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Return the start and end of the run in a list; empty if unknown."""
    try:
        start, ended = (
            datetime.fromisoformat(str(info.get(key))).timestamp()
            for key in ("started", "finished")
        )
    except (ValueError, OverflowError, OSError):
        return []
    return [(start, ended)] if ended >= start else []


def _of_run(
    cases: Iterable[CaseRecord],
    events: Sequence[DeviceEvent],
    coverage: Coverage,
    span: list[tuple[float, float]],
) -> Iterator[Family]:
    if not span:
        every = chain[CaseRecord | DeviceEvent](cases, events)
        starts = ((line.started.timestamp(), line.duration_s) for line in every)
        ends = [(start, start + seconds) for start, seconds in starts]
        span = [(min(start for start, _ in ends), max(end for _, end in ends))] if ends else []
    for start, ended in span:
        seconds = round(ended - start, 3)
        words = "When the last run ended, since 1970."
        yield "run_end", "seconds", words, (), {(): round(ended, 3)}
        yield "run_duration", "seconds", "How long it took.", (), {(): seconds}
    if coverage.selected is not None:
        words = "Cases that the run was to run."
        yield "selected_cases", "", words, (), {(): coverage.selected}
    words = "1 if each of them has a verdict, or cannot or was not to have one; else 0."
    yield "coverage_whole", "", words, (), {(): int(coverage.is_whole)}
    words = "Cases without a verdict, by who is at fault; `not run` left no record."
    missing = {(name,): count for name, count in coverage.missing.items()}
    yield "missing_verdicts", "", words, ("fault",), missing


def _of_cases(cases: Iterable[CaseRecord]) -> Iterator[Family]:
    counts: Counter[tuple[str, ...]] = Counter()
    times: dict[tuple[str, str], list[float]] = {}
    retried: Counter[tuple[str, ...]] = Counter()
    for case in cases:
        retried[(_device(case),)] += case.attempt > 1
        place = _device(case), str(case.axes.get("qnn"))
        counts[(case.state, case.cause or "none", *place)] += 1
        times.setdefault((_device(case), case.suite), []).append(case.duration_s)
    seconds = {
        (*place, name): round(of(durations), 6)
        for place, durations in times.items()
        for name, of in (("median", statistics.median), ("max", max), ("sum", sum))
    }
    words = "Cases by what became of them, the last attempt of each."
    yield "cases", "", words, ("outcome", "cause", "device", "qnn"), counts
    words = "How long cases took."
    yield "case_duration", "seconds", words, ("device", "suite", "statistic"), seconds
    words = "Cases that took more than one attempt."
    yield "retried_cases", "", words, ("device",), +retried


def _of_devices(cases: Iterable[CaseRecord], events: Sequence[DeviceEvent]) -> Iterator[Family]:
    kinds = Counter((event.device, event.event) for event in events if not event.is_routine)
    pushed: Counter[tuple[str, ...]] = Counter()
    push_s: dict[tuple[str, ...], float] = {}
    checks = (event for event in events if event.vitals)
    readings = [(each.started, each.device, _vitals(each.vitals or {})) for each in checks]
    for case in cases:
        if vitals := _vitals(part_of(case, "gate")):
            readings.append((case.started, _device(case), vitals))
    for event in events:
        if event.event == "push":
            pushed[(event.device,)] += event.pushed_bytes or 0
            push_s[(event.device,)] = push_s.get((event.device,), 0.0) + event.duration_s
    readings.sort(key=lambda reading: reading[0])
    words = "Steps to bring a device back, and what was found wrong with it."
    yield "device_events", "", words, ("device", "event"), kinds
    yield "device_pushed", "bytes", "What was sent to a device.", ("device",), pushed
    seconds = {key: round(value, 3) for key, value in push_s.items()}
    yield "device_push", "seconds", "How long that took.", ("device",), seconds
    for name, family in _VITALS.items():
        known = ((device, vitals[name]) for _, device, vitals in readings if name in vitals)
        yield *family, ("device",), {(device,): value for device, value in known}


def _vitals(reported: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name in _VITALS if is_figure(value := reported.get(name))}


_VITALS: Final[Mapping[str, tuple[str, str, str]]] = {
    "hottest_c": ("device_temperature", "celsius", "The hottest sensor, when last asked."),
    "free_ram_bytes": ("device_free_memory", "bytes", "Memory that was free, when last asked."),
    "free_storage_bytes": ("device_free_storage", "bytes", "Storage that was free, likewise."),
    "battery_percent": ("device_battery", "percent", "The battery's charge, likewise."),
}
_NO_SUMS: Final = frozenset({"case_duration", *(name for name, _, _ in _VITALS.values())})


def _folded(
    values: Mapping[tuple[str, ...], float], *, sums: bool
) -> list[tuple[tuple[str, ...], float]]:
    """Return the values in order, with at most 50 values of each label.

    The others are summed up as `other`, or left out if a sum makes no sense.
    """
    plain = [(tuple(map(_value, key)), value) for key, value in values.items()]
    frequent = []
    for column in zip(*(key for key, _ in plain), strict=True):
        counts = Counter(column)
        by_count = sorted(counts, key=lambda value: (-counts[value], value))
        frequent.append(set(by_count[:_MOST_VALUES]))
    folded: dict[tuple[str, ...], float] = {}
    for key, value in plain:
        new = tuple(v if v in known else OTHER for v, known in zip(key, frequent, strict=True))
        if sums or new == key:
            folded[new] = folded.get(new, 0) + value
    return sorted(folded.items())


def _device(case: CaseRecord) -> str:
    return case.device.name if case.device else "none"


def _value(text: str) -> str:
    return re.sub(r"\s+", " ", outgoing(text[: 4 * _VALUE_CHARS]))[:_VALUE_CHARS] or "none"
