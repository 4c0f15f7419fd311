"""A run as OpenMetrics: metrics.prom, for node_exporter's textfile collector or a push (pure).

All are gauges, without timestamps: what the last run of this lab came to. No label is the name of a
case or of a run, and each has at most 50 values, so that a year of runs stays as many series.
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
"""The label of all values but the most frequent ones."""
_MOST_VALUES: Final = 50
_VALUE_CHARS: Final = 100


def metrics_text(
    cases: Iterable[CaseRecord],
    events: Sequence[DeviceEvent],
    info: Mapping[str, Any],
    coverage: Coverage,
) -> str:
    """The exposition, which Prometheus' older text format reads as well.

    `info` is run.json, which says how long the run took; where it does not, cases and events do.
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
            labels = ",".join(f'{k}="{_escaped(v)}"' for k, v in zip(names, key, strict=True))
            lines.append(f"{full}{f'{{{labels}}}' if labels else ''} {value!r}")
    return "\n".join([*lines, "# EOF", ""])


Family = tuple[str, str, str, tuple[str, ...], Mapping[Any, float]]
"""Name, unit, what it is, the names of its labels, and its values by those of the labels."""


def _span(info: Mapping[str, Any]) -> list[tuple[float, float]]:
    """When the run began and ended; nothing where that is not said."""
    try:
        began, ended = (
            datetime.fromisoformat(str(info.get(key))).timestamp()
            for key in ("started", "finished")
        )
    except (ValueError, OverflowError, OSError):
        return []
    return [(began, ended)] if ended >= began else []


def _of_run(
    cases: Iterable[CaseRecord],
    events: Sequence[DeviceEvent],
    coverage: Coverage,
    span: list[tuple[float, float]],
) -> Iterator[Family]:
    if not span:
        every = chain[CaseRecord | DeviceEvent](cases, events)
        starts = ((one.started.timestamp(), one.duration_s) for one in every)
        ends = [(at, at + took) for at, took in starts]
        span = [(min(at for at, _ in ends), max(end for _, end in ends))] if ends else []
    for began, ended in span:
        took = round(ended - began, 3)
        words = "When the last run ended, since 1970."
        yield "run_end", "seconds", words, (), {(): round(ended, 3)}
        yield "run_duration", "seconds", "How long it took.", (), {(): took}
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
    for one in cases:
        retried[(_device(one),)] += one.attempt > 1
        place = _device(one), str(one.axes.get("qnn"))
        counts[(one.state, one.cause or "none", *place)] += 1
        times.setdefault((_device(one), one.suite), []).append(one.duration_s)
    seconds = {
        (*place, name): round(of(took), 6)
        for place, took in times.items()
        for name, of in (("median", statistics.median), ("max", max), ("sum", sum))
    }
    words = "Cases by what became of them, the last attempt of each."
    yield "cases", "", words, ("outcome", "cause", "device", "qnn"), counts
    words = "How long cases took."
    yield "case_duration", "seconds", words, ("device", "suite", "statistic"), seconds
    words = "Cases that took more than one attempt."
    yield "retried_cases", "", words, ("device",), +retried


def _of_devices(cases: Iterable[CaseRecord], events: Sequence[DeviceEvent]) -> Iterator[Family]:
    kinds = Counter((one.device, one.event) for one in events if not one.is_routine)
    pushed: Counter[tuple[str, ...]] = Counter()
    took: dict[tuple[str, ...], float] = {}
    heard = [(one.started, one.device, _vitals(one.vitals)) for one in events if one.vitals]
    for one in cases:
        if vitals := _vitals(part_of(one, "gate")):
            heard.append((one.started, _device(one), vitals))
    for event in events:
        if event.event == "push":
            pushed[(event.device,)] += event.pushed_bytes or 0
            took[(event.device,)] = took.get((event.device,), 0.0) + event.duration_s
    heard.sort(key=lambda one: one[0])
    words = "Steps to bring a device back, and what was found wrong with it."
    yield "device_events", "", words, ("device", "event"), kinds
    yield "device_pushed", "bytes", "What was sent to a device.", ("device",), pushed
    seconds = {key: round(value, 3) for key, value in took.items()}
    yield "device_push", "seconds", "How long that took.", ("device",), seconds
    for name, told in _VITALS.items():
        known = ((device, vitals[name]) for _, device, vitals in heard if name in vitals)
        yield *told, ("device",), {(device,): value for device, value in known}


def _vitals(said: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name in _VITALS if is_figure(value := said.get(name))}


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
    """The values in order, with at most 50 values of each label.

    The values of other labels are summed up as `other`, or left out where a sum makes no sense.
    """
    plain = [(tuple(map(_value, key)), value) for key, value in values.items()]
    kept = []
    for column in zip(*(key for key, _ in plain), strict=True):
        seen = Counter(column)
        kept.append(set(sorted(seen, key=lambda one: (-seen[one], one))[:_MOST_VALUES]))
    found: dict[tuple[str, ...], float] = {}
    for key, value in plain:
        new = tuple(v if v in known else OTHER for v, known in zip(key, kept, strict=True))
        if sums or new == key:
            found[new] = found.get(new, 0) + value
    return sorted(found.items())


def _device(case: CaseRecord) -> str:
    return case.device.name if case.device else "none"


def _value(text: str) -> str:
    return re.sub(r"\s+", " ", outgoing(text[: 4 * _VALUE_CHARS]))[:_VALUE_CHARS] or "none"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
