"""A run as OpenMetrics: metrics.prom, for node_exporter's textfile collector or a push (pure).

All are gauges, without timestamps: what the last run of this lab came to. No label is the name of a
case or of a run, and each has at most 50 values, so that a year of runs stays as many series.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from harness.errors.outgoing_text import outgoing
from harness.results.record import CaseRecord, DeviceEvent, final_attempts, is_figure

METRICS: Final = "metrics.prom"
OTHER: Final = "other"
"""What all but the most frequent values of a label are called."""
_MOST_VALUES: Final = 50
_VALUE_CHARS: Final = 100

Row = tuple[dict[str, str], float]


def metrics_text(records: Iterable[CaseRecord], events: Iterable[DeviceEvent]) -> str:
    """The exposition, which Prometheus' older text format reads as well."""
    final, told = final_attempts(records), list(events)
    families = _of_run(final, told) + _of_cases(final) + _of_devices(final, told)
    lines: list[str] = []
    for name, unit, words, rows in families:
        full = f"qnn_harness_{name}{'_' + unit if unit else ''}"
        lines.append(f"# TYPE {full} gauge")
        lines += [f"# UNIT {full} {unit}"] if unit else []
        lines.append(f"# HELP {full} {words}")
        sums = name not in _NO_SUMS
        found = _folded(rows, sums=sums)
        lines += [f"{full}{_labels(labels)} {_number(value)}" for labels, value in found]
    return "\n".join([*lines, "# EOF", ""])


Family = tuple[str, str, str, list[Row]]


def _of_run(cases: Sequence[CaseRecord], events: Sequence[DeviceEvent]) -> list[Family]:
    spans = [(one.started.timestamp(), one.duration_s) for one in cases]
    spans += [(one.started.timestamp(), one.duration_s) for one in events]
    if not spans:
        return []
    began, ended = min(at for at, _ in spans), max(at + took for at, took in spans)
    return [
        ("run_end", "seconds", "When the last run ended, since 1970.", [({}, round(ended, 3))]),
        ("run_duration", "seconds", "How long it took.", [({}, round(ended - began, 3))]),
    ]


def _of_cases(cases: Sequence[CaseRecord]) -> list[Family]:
    counts: Counter[tuple[str, ...]] = Counter()
    times: dict[tuple[str, str], list[float]] = {}
    forecasts: Counter[tuple[str, ...]] = Counter()
    for one in cases:
        place = _device(one), str(one.axes.get("qnn"))
        outcome = "expected" if one.is_bad and one.expected else one.outcome
        counts[(outcome, one.cause or "none", *place)] += 1
        times.setdefault((_device(one), one.suite), []).append(one.duration_s)
        told, loaded = one.measurements.get("forecast"), one.measurements.get("loaded")
        hoped = told.get("loaded") if isinstance(told, dict) else None
        if is_figure(hoped) and is_figure(loaded):
            off = loaded - hoped
            verdict = "held" if off == 0 else "more" if off > 0 else "fewer"
            forecasts[(verdict, *place)] += 1
    seconds = [
        ({"device": device, "suite": suite, "statistic": name}, round(of(took), 6))
        for (device, suite), took in times.items()
        for name, of in (("median", statistics.median), ("max", max), ("sum", sum))
    ]
    return [
        (
            "cases",
            "",
            "Cases by what became of them, the last attempt of each.",
            _rows(counts, ("outcome", "cause", "device", "qnn")),
        ),
        ("case_duration", "seconds", "How long cases took.", seconds),
        (
            "retried_cases",
            "",
            "Cases that took more than one attempt.",
            _rows(
                Counter((_device(one),) for one in cases if one.attempt > 1),
                ("device",),
            ),
        ),
        (
            "forecasts",
            "",
            "Cases with as many contexts loaded as forecast, more, or fewer.",
            _rows(forecasts, ("verdict", "device", "qnn")),
        ),
    ]


def _of_devices(cases: Sequence[CaseRecord], events: Sequence[DeviceEvent]) -> list[Family]:
    kinds = Counter((one.device, one.event) for one in events if not one.is_routine)
    pushed: Counter[tuple[str, ...]] = Counter()
    took: dict[str, float] = {}
    last: dict[str, dict[tuple[str], float]] = {name: {} for name in _VITALS}
    heard: list[tuple[Any, str, Mapping[str, Any]]] = []
    for event in events:
        heard.append((event.started, event.device, event.vitals or {}))
        if event.event == "push":
            pushed[(event.device,)] += event.pushed_bytes or 0
            took[event.device] = took.get(event.device, 0.0) + event.duration_s
    for case in cases:
        gate = case.measurements.get("gate")
        heard.append((case.started, _device(case), gate if isinstance(gate, dict) else {}))
    for _, device, vitals in sorted(heard, key=lambda one: one[0]):
        for name in _VITALS:
            value = vitals.get(name)
            if is_figure(value):
                last[name][(device,)] = value
    return [
        (
            "device_events",
            "",
            "Steps to bring a device back, and what was found wrong with it.",
            _rows(kinds, ("device", "event")),
        ),
        ("device_pushed", "bytes", "What was sent to a device.", _rows(pushed, ("device",))),
        (
            "device_push",
            "seconds",
            "How long that took.",
            [({"device": device}, round(value, 3)) for device, value in took.items()],
        ),
        *(
            (family, unit, words, _rows(last[name], ("device",)))
            for name, (family, unit, words) in _VITALS.items()
        ),
    ]


_VITALS: Final[Mapping[str, tuple[str, str, str]]] = {
    "hottest_c": ("device_temperature", "celsius", "The hottest sensor, when last asked."),
    "free_ram_bytes": ("device_free_memory", "bytes", "Memory that was free, when last asked."),
    "free_storage_bytes": ("device_free_storage", "bytes", "Storage that was free, likewise."),
    "battery_percent": ("device_battery", "percent", "The battery's charge, likewise."),
}
_NO_SUMS: Final = frozenset({"case_duration", *(name for name, _, _ in _VITALS.values())})


def _rows(values: Mapping[Any, float], names: Sequence[str]) -> list[Row]:
    return [(dict(zip(names, key, strict=True)), value) for key, value in values.items()]


def _folded(rows: list[Row], *, sums: bool) -> list[Row]:
    """The rows in order, with at most 50 values of each label.

    Those of the others are summed up as `other`, or left out where that makes no sense.
    """
    kept: dict[str, set[str]] = {}
    for name in {name for labels, _ in rows for name in labels}:
        seen = Counter(_value(labels[name]) for labels, _ in rows if name in labels)
        ranked = sorted(seen, key=lambda one: (-seen[one], one))
        kept[name] = set(ranked[:_MOST_VALUES])
    found: dict[tuple[tuple[str, str], ...], float] = {}
    for labels, value in rows:
        plain = {name: _value(text) for name, text in labels.items()}
        key = tuple((k, v if v in kept[k] else OTHER) for k, v in plain.items())
        if not sums and key != tuple(plain.items()):
            continue
        found[key] = found.get(key, 0) + value
    return [(dict(key), found[key]) for key in sorted(found)]


def _device(case: CaseRecord) -> str:
    return case.device.name if case.device else "none"


def _value(text: str) -> str:
    """A label's value: one line that steers no terminal, of at most 100 characters."""
    return re.sub(r"\s+", " ", outgoing(text[: 4 * _VALUE_CHARS]))[:_VALUE_CHARS] or "none"


def _labels(labels: Mapping[str, str]) -> str:
    told = (f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{','.join(told)}}}" if labels else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))
