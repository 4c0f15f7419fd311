"""The data of report.html: a row for each case, and the rest in blocks that a page opens (pure).

The page must open at once with thousands of cases. So what its table and charts need of all cases
is one document of columns, and what only the view of one case needs lies in compressed blocks.
"""

from __future__ import annotations

import base64
import gzip
import heapq
import io
import json
import shlex
import statistics
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Final, cast

from harness.answers.report.again import again
from harness.answers.report.grid import code_of
from harness.answers.report.pages import clip, thinned
from harness.answers.report.run_data import Since
from harness.answers.report.summary import FailureGroup, part_of
from harness.verdict.results.record import CaseRecord, DeviceEvent, are_figures, is_figure

BLOCK: Final = 128
"""So many cases are in a block of details."""
_MOST_AXES: Final = 24
_MOST_MET: Final = 100
_MOST_POINTS: Final = 400
_MOST_LADDERS: Final = 500
_MAX_CHARS: Final = 300
_AT_ONCE: Final = 1000
_MAX_CASE_BYTES: Final = 256 << 10
_COLUMNS: Final = ("case", "state", "suite", "device", "start", "seconds", "why", "code", "group")


class Packed:
    """Named values as gzip of one JSON object; none is held longer than it is written."""

    def __init__(self) -> None:
        self._made = io.BytesIO()
        self._stream = gzip.GzipFile(fileobj=self._made, mode="wb", compresslevel=6, mtime=0)
        self._stream.write(b"{")
        self._before = ""

    def add(self, name: str, column: Any) -> None:
        """Write one value. An iterator is a list that is not held at once."""
        self._stream.write(f"{self._before}{_json(name)}:".encode())
        self._before = ","
        for text in _pieces(column):
            self._stream.write(text.encode("utf-8", "replace"))

    def text(self) -> str:
        """Return all in base64."""
        self._stream.write(b"}")
        self._stream.close()
        return base64.b64encode(self._made.getbuffer()).decode()


def _pieces(column: Any) -> Iterator[str]:
    if not isinstance(column, list | Iterator):
        yield _json(column)
        return
    items, before = iter(column), "["
    while piece := list(islice(items, _AT_ONCE)):
        yield before + _json(piece)[1:-1]
        before = ","
    yield "]" if before == "," else "[]"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Rows:
    """What table and charts show, of cases: `pool` has each value once, and columns name it by its
    place.

    `start` is in ms since `began`, `seconds` how long a case took, `degrees` how hot its device was
    before it. `group` is the place among `groups`, -1 for a case in none. `figures` has for each
    case its lists of times in microseconds as (number, least, quartile, median, quartile, most),
    `ladders` what a case with many contexts had loaded when, and in how much memory.
    """

    def __init__(self, cases: Iterable[CaseRecord], since: Since | None = None) -> None:
        self._pool, self._packed, figures = _Pool(), Packed(), _Pool()
        self._columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
        self._became: list[int] = []
        self._degrees: list[list[float]] = []
        self._axes = _Axes(self._pool)

        def spreads() -> Iterator[list[list[float]]]:
            for record in cases:
                self._add(record, since)
                yield [[figures.place(name), *spread] for name, spread in _spreads(record)]

        self._packed.add("figures", spreads())
        self._packed.add("figure_names", figures.values)
        self._packed.add("since", None if since is None else self._became)

    def _add(self, record: CaseRecord, since: Since | None) -> None:
        pool, columns = self._pool, self._columns
        self._axes.add(record)
        columns["state"].append(pool.place(record.state))
        columns["suite"].append(pool.place(record.suite))
        columns["device"].append(pool.place(record.device.name if record.device else None))
        columns["start"].append(record.started)
        columns["seconds"].append(round(record.duration_s, 3))
        columns["why"].append(pool.place(_why(record)))
        columns["code"].append(pool.place(code_of(record) if record.is_bad else None))
        if since is not None:
            self._became.append(pool.place(since.became.get(record.case)))
        celsius = _number(part_of(record, "gate").get("hottest_c"))
        self._degrees += [[len(columns["case"]), celsius]] if celsius is not None else []
        columns["case"].append(record.case)

    def packed(
        self,
        events: Sequence[DeviceEvent],
        groups: Sequence[FailureGroup],
        more: dict[str, Any],
    ) -> str:
        """Return them with what happened to devices, the groups of failures, and `more`."""
        columns = self._columns
        group_of = {case: place for place, group in enumerate(groups) for case in group.cases}
        began = min((*columns["start"], *(event.started for event in events)), default=None)
        axes = self._axes.that_vary()
        told = [
            {
                "device": event.device,
                "event": event.event,
                "state": event.state,
                "detail": clip(event.detail, _MAX_CHARS),
                "start": _ms(event.started, began),
                "seconds": round(event.duration_s, 3),
                "celsius": _number((event.vitals or {}).get("hottest_c")),
            }
            for event in events
        ]
        columns |= {
            "start": [_ms(moment, began) for moment in columns["start"]],
            "group": [group_of.get(case, -1) for case in columns["case"]],
            "axes": list(axes),
            "values": list(axes.values()),
            "events": told,
            "degrees": self._degrees,
            "pool": self._pool.values,
        }
        for name, column in ({"began": began and began.isoformat()} | columns | more).items():
            self._packed.add(name, column)
        return self._packed.text()


def blocks(cases: Iterable[CaseRecord], lab: Sequence[str] = ()) -> list[str]:
    """What the view of one case shows, packed: case N is the (N mod 128)th of block N / 128. With
    it stands how it is run `again`; `lab` are the words that say in which lab."""
    details = (_details(record, lab) for record in cases)
    texts = iter(lambda: ",".join(islice(details, BLOCK)), "")
    return [_packed(f"[{text}]") for text in texts]


class _Pool:
    """Values, each once, with the place of each."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._places: dict[str | tuple[str], int] = {}

    def place(self, value: Any) -> int:
        key = value if isinstance(value, str) else (json.dumps(value, ensure_ascii=False),)
        if key not in self._places:
            self._places[key] = len(self.values)
            self.values.append(value if value is None else clip(value, _MAX_CHARS))
        return self._places[key]


def _packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), 6, mtime=0)).decode()


def _details(record: CaseRecord, lab: Sequence[str]) -> str:
    """One record as JSON; what would be too much for a page is left to results.jsonl."""
    less: dict[str, object] = {"measurements": {}, "checks": (), "preflight": ()}
    for kept in (record, record.model_copy(update=less)):
        text = kept.model_dump_json(by_alias=True, exclude_defaults=True)
        if len(text) <= _MAX_CASE_BYTES:
            return f'{text[:-1]},"again":{_json(shlex.join(again(record, *lab)))}}}'
    return json.dumps({"case": clip(record.case, _MAX_CHARS), "outcome": record.outcome})


class _Axes:
    """The values of each axis of each case, as places in a pool."""

    def __init__(self, pool: _Pool) -> None:
        self._pool, self._cases = pool, 0
        self._columns: dict[str, list[int]] = {}

    def add(self, record: CaseRecord) -> None:
        """The axes of the next case."""
        axes = record.axes | ({"engine": record.engine} if record.engine else {})
        for name in axes:
            # the device has a column anyway
            if name not in self._columns and name != "device" and len(self._columns) < _MOST_MET:
                self._columns[name] = [self._pool.place(None)] * self._cases
        for name, column in self._columns.items():
            column.append(self._pool.place(axes.get(name)))
        self._cases += 1

    def that_vary(self) -> dict[str, list[int]]:
        vary = ((name, places) for name, places in self._columns.items() if len({*places}) > 1)
        return dict(islice(vary, _MOST_AXES))


def _spreads(record: CaseRecord) -> Iterable[tuple[str, list[float]]]:
    """The lists of times among the measurements, summed up."""
    if not any(name.endswith("_us") for name in record.measurements):
        return
    for name, value in record.measurements.items():
        if name.endswith("_us") and isinstance(value, list) and value and are_figures(value):
            yield name, _spread(cast("list[float]", value))


def _spread(values: Sequence[float]) -> list[float]:
    low, high = min(values), max(values)
    if len(values) == 1:
        return [1, *[low] * 5]
    inside = [min(max(round(one), low), high) for one in statistics.quantiles(values)]
    return [len(values), low, *inside, high]


def ladders(cases: Iterable[CaseRecord]) -> list[dict[str, Any]]:
    """Load times and memory by the number of contexts that were loaded, what failed first."""

    def found() -> Iterator[tuple[bool, int, int, dict[str, Any]]]:
        for number, record in enumerate(cases):
            loads = _numbers(record.measurements.get("load_us"))
            if len(loads) > 1:
                ladder = _ladder(number, record, loads)
                yield not _refused(record, loads), -len(loads), number, ladder

    return [ladder for *_, ladder in heapq.nsmallest(_MOST_LADDERS, found())]


def _ladder(number: int, record: CaseRecord, loads: list[float]) -> dict[str, Any]:
    memory = _numbers(record.measurements.get("load_rss_bytes"))
    return {
        "case": number,
        "loads": len(loads),
        "load_us": thinned(loads, _MOST_POINTS),
        "rss_bytes": thinned(memory, _MOST_POINTS) if len(memory) == len(loads) else [],
        "failed_at": len(loads) + 1 if _refused(record, loads) else None,
    }


def _refused(record: CaseRecord, loads: Sequence[float]) -> bool:
    failed = record.error.context if record.error else None
    return failed is not None and failed >= len(loads)


def _numbers(value: Any) -> list[float]:
    numbers = value if isinstance(value, list) else []
    return numbers if are_figures(numbers) else []


def _number(value: Any) -> float | None:
    return value if is_figure(value) else None


def _why(record: CaseRecord) -> str | None:
    error = record.error
    if error is None:
        return (record.conclusion or "").partition("\n")[0] or None
    code = f"{error.code} " if error.code else ""
    return clip(f"{code}{error.began}", _MAX_CHARS)


def _ms(moment: datetime, began: datetime | None) -> int:
    return round((moment - began).total_seconds() * 1000) if began else 0
