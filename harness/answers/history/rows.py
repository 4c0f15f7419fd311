"""What the database holds of a journal's lines: a row for each attempt and each device (pure)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from harness.answers.history.attempts import Attempt
from harness.answers.history.causes import cause_id, hashed
from harness.answers.report.summary import part_of
from harness.verdict.results.record import CaseRecord, DeviceEvent, PlacementRecord, is_figure

# What an index of PostgreSQL holds at most is 2,700 bytes.
_NAME_CHARS: Final = 500
_BIGGEST: Final = 1 << 62
_LINK: Final = ("reconnect", "restart-server")
_STEPS: Final = (*_LINK, "end-leftovers", "reboot", "power-cycle")
_VITALS: Final = ("hottest_c", "battery_percent", "free_storage_bytes")


def kin_of(attempt: Attempt) -> str:
    """What a case shares with its cases of other versions, as a key of 16 characters."""
    return hashlib.sha256(attempt.kin.encode("utf-8", "replace")).hexdigest()[:16]


def attempt_row(run: str, line: int, record: CaseRecord, attempt: Attempt) -> dict[str, object]:
    """The row of an attempt."""
    texts = {
        "name": attempt.case,
        "test": attempt.test,
        "device": attempt.device,
        "simulated": attempt.simulated,
        "soc": record.device and record.device.soc,
        "qnn": attempt.axis("qnn"),
        "ort": attempt.axis("ort"),
        "known_issue": attempt.known_issue,
        "diagnosis": attempt.diagnosis,
        "signature": attempt.failure,
        "server": attempt.server,
    }
    return {
        "run": run,
        "line": line,
        **{name: None if said is None else bounded(str(said)) for name, said in texts.items()},
        "axes": json.dumps(attempt.axes),
        "outcome": attempt.outcome,
        "cause": attempt.cause,
        "error": None if record.error is None else record.error.model_dump_json(),
        "started": attempt.started,
        "attempt": attempt.attempt,
        "kin": kin_of(attempt),
        "placement": attempt.placement and _bounded_placement(attempt.placement),
        "figures": json.dumps(attempt.figures) if attempt.figures else None,
        "cause_id": cause_id(attempt) if attempt.is_bad else None,
        "identity": hashed(repr(attempt.identity)),
        "counts": True,
    }


def hosts_in(info: Mapping[str, Any]) -> dict[str, str]:
    """The computer that each device of a run hangs on, by its run.json; under "" the one that it
    was run from."""
    devices = info.get("lab", {}).get("devices", [])
    found = {
        bounded(one.get("name", "")): bounded(one["host"]) for one in devices if one.get("host")
    }
    if own := info.get("host", {}).get("name"):
        found.setdefault("", bounded(own))
    return found


@dataclass
class DeviceSums:
    """What a journal says of each device, over all its cases and events."""

    hosts: Mapping[str, str] = field(default_factory=dict)
    _rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    _first: float = float("inf")
    _last: float = 0.0

    def take(self, said: CaseRecord | DeviceEvent) -> None:
        """One more line, in the order of the journal."""
        if isinstance(said, DeviceEvent):
            row = self._row(said.device)
            row["link_faults"] += said.event in _LINK
            row["recoveries"] += said.event in _STEPS
            row["quarantines"] += said.event == "quarantine"
            if said.event != "push":
                row["state"], row["finding"] = said.state, bounded(said.detail) or None
            self._vitals(row, said.vitals)
            return
        begun = said.started.timestamp()
        self._first, self._last = min(self._first, begun), max(self._last, begun + said.duration_s)
        if said.device is not None:
            row = self._row(said.device.name)
            row["soc"] = bounded(said.device.soc or "") or row["soc"]
            row["busy_s"] += said.duration_s
            self._vitals(row, part_of(said, "gate"))

    def rows(self, run: str) -> Iterator[dict[str, object]]:
        """The rows of a run's devices."""
        span = max(0.0, self._last - self._first)
        for row in self._rows.values():
            yield {"run": run, **row, "span_s": span}

    def _row(self, device: str) -> dict[str, Any]:
        name = bounded(device)
        host = self.hosts.get(name, self.hosts.get(""))
        none: dict[str, Any] = dict.fromkeys((*_VITALS, "soc", "state", "finding"))
        counts = dict.fromkeys(("link_faults", "recoveries", "quarantines"), 0)
        return self._rows.setdefault(
            name, {"device": name, "host": host, "busy_s": 0.0, **none, **counts}
        )

    def _vitals(self, row: dict[str, Any], vitals: Mapping[str, Any] | None) -> None:
        """The hottest that it was, the least of what it had left."""
        for name in _VITALS:
            value, known = (vitals or {}).get(name), row[name]
            if is_figure(value) and abs(value) < _BIGGEST:
                whole = value if name == "hottest_c" else int(value)
                best = max if name == "hottest_c" else min
                row[name] = whole if known is None else best(known, whole)


def _bounded_placement(placement: PlacementRecord) -> str:
    said = placement.model_dump(mode="json")
    texts = {name: text and bounded(text) for name, text in said.items()}
    return placement.model_copy(update=texts).model_dump_json()


def bounded(text: str) -> str:
    """A text that is short enough for any index, and still differs from others."""
    text = without_nul(text)
    if len(text) <= _NAME_CHARS:
        return text
    return f"{text[: _NAME_CHARS - 20]}...{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def without_nul(text: str) -> str:
    """PostgreSQL holds every character but this one."""
    return text.replace("\0", "\ufffd")
