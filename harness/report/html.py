"""report.html: one page without external assets, made from the journal's records.

Its first screen is plain HTML. Its script draws the table, the charts and the view of a case from
packed data in the page.

The page must open at once with thousands of cases. So the data of the table and charts is one
document of columns, and the data for the views of single cases are compressed blocks.
"""

from __future__ import annotations

import base64
import gzip
import heapq
import json
import os
import shlex
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, cast

from markupsafe import Markup

from harness.core.matrix_axes import VERSIONS
from harness.core.outgoing_text import counted, first_names
from harness.core.paths_inside import open_inside
from harness.report.document import (
    as_html,
    asset,
    clip,
    day_and_minute,
    downsample,
    prose,
    template,
)
from harness.report.sections import RunData, Since, outputs_in, sections_of, shown
from harness.report.summary import (
    COUNTED,
    SECTIONS,
    FailureGroup,
    asked_grids,
    code_of,
    cut_short,
    failure_groups,
    gaps,
    only_simulated,
    outputs_lines,
    places,
    rerun_command,
    section as section_of,
)
from harness.results.coverage import LOST_TO
from harness.results.journal import Reader, read_once
from harness.results.record import CaseRecord, are_figures

BLOCK: Final = 128
"""The number of cases in a block of details."""
_MOST_AXES: Final = 24
_MOST_MET: Final = 100
_MOST_POINTS: Final = 400
_MOST_LADDERS: Final = 500
_MAX_CHARS: Final = 300
_MAX_CASE_BYTES: Final = 256 << 10
_COLUMNS: Final = ("case", "state", "suite", "device", "seconds", "why", "code", "group")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Rows:
    """The data of cases for table and charts: `pool` has each value once, and columns have indexes.

    `seconds` is the duration of a case, `group` the index in `groups`, -1 for a case in none.
    `figures` has each case's lists of times in microseconds as (number, minimum, quartile, median,
    quartile, maximum), `ladders` the load times and memory of a case with many contexts.
    """

    def __init__(self, cases: Iterable[CaseRecord], since: Since | None = None) -> None:
        self._pool, figures = _Pool(), _Pool()
        self._columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
        self._became: list[int] = []
        self._axes: dict[str, list[int]] = {}
        spreads: list[list[list[float]]] = []
        for record in cases:
            self._add(record, since)
            spreads.append([[figures.place(name), *spread] for name, spread in _spreads(record)])
        became = None if since is None else self._became
        self._facts = {"figures": spreads, "figure_names": figures.values, "since": became}

    def _add(self, record: CaseRecord, since: Since | None) -> None:
        pool, columns = self._pool, self._columns
        axes = record.axes | ({"engine": record.engine} if record.engine else {})
        for name in axes:
            # the device has its own column
            if name not in self._axes and name != "device" and len(self._axes) < _MOST_MET:
                self._axes[name] = [pool.place(None)] * len(columns["case"])
        for name, column in self._axes.items():
            column.append(pool.place(axes.get(name)))
        columns["state"].append(pool.place(record.state))
        columns["suite"].append(pool.place(record.suite))
        columns["device"].append(pool.place(record.device.name if record.device else None))
        columns["seconds"].append(round(record.duration_s, 3))
        columns["why"].append(pool.place(_why(record)))
        columns["code"].append(pool.place(code_of(record) if record.is_bad else None))
        if since is not None:
            self._became.append(pool.place(since.became.get(record.case)))
        columns["case"].append(record.case)

    def __len__(self) -> int:
        return len(self._columns["case"])

    def values(self, name: str) -> list[str]:
        """Return the values of an axis, or the devices, each once."""
        places = self._columns["device"] if name == "device" else self._axes.get(name, ())
        values = (self._pool.values[place] for place in dict.fromkeys(places))
        return [value for value in values if value is not None]

    def packed(self, groups: Sequence[FailureGroup], more: dict[str, Any]) -> str:
        group_of = {case: place for place, group in enumerate(groups) for case in group.cases}
        vary = ((name, places) for name, places in self._axes.items() if len({*places}) > 1)
        axes = dict(islice(vary, _MOST_AXES))
        facts = {
            "group": [group_of.get(case, -1) for case in self._columns["case"]],
            "axes": list(axes),
            "values": list(axes.values()),
            "pool": self._pool.values,
        }
        return _packed(_json(self._facts | self._columns | facts | more))


def blocks(cases: Iterable[CaseRecord], lab: Sequence[str] = ()) -> list[str]:
    """Return packed data for views of single cases: case N is number N mod 128 of block N / 128.

    It has the command to run the case `again`; `lab` are the words of it that name the lab.
    """
    details = (_details(record, lab) for record in cases)
    texts = iter(lambda: ",".join(islice(details, BLOCK)), "")
    return [_packed(f"[{text}]") for text in texts]


class _Pool:
    """Values, each stored once, with its index."""

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
    """Return a record as JSON, without what is too large for a page."""
    less: dict[str, object] = {"measurements": {}, "checks": (), "preflight": ()}
    for version in (record, record.model_copy(update=less)):
        text = version.model_dump_json(by_alias=True, exclude_defaults=True)
        if len(text) <= _MAX_CASE_BYTES:
            return f'{text[:-1]},"again":{_json(shlex.join(rerun_command(record, *lab)))}}}'
    return json.dumps({"case": clip(record.case, _MAX_CHARS), "outcome": record.outcome})


def _spreads(record: CaseRecord) -> Iterable[tuple[str, list[float]]]:
    """Yield summaries of the lists of times among the measurements."""
    if not any(name.endswith("_us") for name in record.measurements):
        return
    for name, value in record.measurements.items():
        if name.endswith("_us") and isinstance(value, list) and value and are_figures(value):
            yield name, _spread(cast("list[float]", value))


def _spread(values: Sequence[float]) -> list[float]:
    low, high = min(values), max(values)
    if len(values) == 1:
        return [1, *[low] * 5]
    inside = [min(max(round(value), low), high) for value in statistics.quantiles(values)]
    return [len(values), low, *inside, high]


def ladders(cases: Iterable[CaseRecord]) -> list[dict[str, Any]]:
    """Return load times and memory by the number of contexts loaded, failed cases first."""

    def candidates() -> Iterator[tuple[bool, int, int, dict[str, Any]]]:
        for number, record in enumerate(cases):
            loads = _numbers(record.measurements.get("load_us"))
            if len(loads) > 1:
                memory = _numbers(record.measurements.get("load_rss_bytes"))
                failed = record.error.context if record.error else None
                refused = failed is not None and failed >= len(loads)
                is_complete = len(memory) == len(loads)
                ladder = {
                    "case": number,
                    "loads": len(loads),
                    "load_us": downsample(loads, _MOST_POINTS),
                    "rss_bytes": downsample(memory, _MOST_POINTS) if is_complete else [],
                    "failed_at": len(loads) + 1 if refused else None,
                    "estimate_bytes": record.measurements.get("refused_estimate_bytes"),
                }
                yield not refused, -len(loads), number, ladder

    return [ladder for *_, ladder in heapq.nsmallest(_MOST_LADDERS, candidates())]


def _numbers(value: Any) -> list[float]:
    numbers = value if isinstance(value, list) else []
    return numbers if are_figures(numbers) else []


def _why(record: CaseRecord) -> str | None:
    error = record.error
    if error is None:
        reason = record.conclusion or str(record.measurements.get("skip_reason") or "")
        return reason.partition("\n")[0] or None
    code = f"{error.code} " if error.code else ""
    return clip(f"{code}{error.headline}", _MAX_CHARS)


_SHORT_CHARS: Final = 160
_EVIDENCE_BYTES: Final = 16 << 10
_MOST_EVIDENCE_BYTES: Final = 1 << 20
_NEW: Final = ("new", "changed", "added")
_LAB_OPTIONS: Final = ("--lab", "--qnn-lab")
_TEXTS: Final = (".txt", ".log", ".jsonl")


def html_text(run: RunData, cases: Iterable[CaseRecord] | None = None) -> str:
    """Return the page; `cases` are those of the run, if others read them at the same time.

    Its first screen is in the template, the rest are sections (`sections.py`).
    """
    info, since, coverage, cut = run.info, run.since, run.coverage, cut_short(run.info)
    folder = run.folder
    links: Mapping[str, str | None] = info.get("known_issues", {})
    issues = {name: link for name, link in links.items() if link and link.startswith("https://")}
    sections = [*sections_of(run)]
    words: list[str] = info.get("command", [])
    options = [i for i, word in enumerate(words) if word.partition("=")[0] in _LAB_OPTIONS]
    lab = [word for i in options[:1] for word in words[i : i + 1 + ("=" not in words[i])]]
    readers: dict[str, Reader] = {
        "groups": failure_groups,
        "behind": outputs_lines,
        "grids": asked_grids,
        "ladders": ladders,
        "drifting": lambda cases: sum(output.drifts for output in outputs_in(run, cases)),
        "rows": lambda cases: Rows(cases, since),
        "blocks": lambda cases: blocks(cases, lab),
        "evidence": lambda cases: evidence_of(cases, folder.path) if folder else {},
        "simulated": lambda cases: sum(map(only_simulated, cases)),
        "seconds": lambda cases: sum(record.duration_s for record in cases),
    }
    makers = (section.html for section in sections)
    results = read_once(run.cases if cases is None else cases, *readers.values(), *makers)
    parts = dict(zip(readers, results, strict=False))
    rows: Rows = parts["rows"]
    placed = dict.fromkeys(("top", "above_cases", "below_cases"), Markup())
    for section, text in zip(sections, results[len(readers) :], strict=True):
        placed[section.place] += text
    # those with new failures first in their section
    groups = sorted(parts["groups"], key=lambda group: not _new_among(group.cases, since))
    of_section: dict[str, list[tuple[int, FailureGroup]]] = {name: [] for name in SECTIONS}
    for number, group in enumerate(groups):
        of_section[section_of(group.first)].append((number, group))
    failing = chain(*(group.cases for _, group in of_section["failing"]))
    new = None if since is None else _new_among(failing, since)
    became = Counter(since.became.values() if since else ())
    tested = coverage.judged or not (coverage.selected and coverage.is_whole)
    headline = ("" if tested else "nothing was tested: ") + coverage.headline(new)
    headline = f"{'Cut short. ' if cut else ''}{headline[:1].upper()}{headline[1:]}."
    more = {"issues": issues, "versions": VERSIONS}
    more |= {name: parts[name] for name in ("ladders", "evidence", "grids")}
    return template("report.html.j2").render(
        title=f"{headline} qnn-harness {run.run}",
        run=run.run,
        started=f" of {day_and_minute(info['started'])}" if info.get("started") else "",
        info=info,
        verdict=headline,
        gaps=gaps(info),
        since=since,
        coverage=coverage,
        became={word: became[word] for word in since.titles if became[word]} if since else {},
        tested=places(rows.values("device"), {axis: rows.values(axis) for axis in VERSIONS}),
        **{name: parts[name] for name in ("behind", "drifting", "simulated")},
        duration=_seconds(parts["seconds"]),
        cases=counted(len(rows), "case") if rows else "",
        causes=of_section["failing"] + of_section["lab"],
        others={title: of_section[name] for name, title in COUNTED.items()},
        lost_to=LOST_TO,
        as_html=as_html,
        prose=prose,
        counted=counted,
        where=_where,
        since_of=partial(_since, since=since),
        placed=placed,
        shown=shown,
        short=partial(clip, most=_SHORT_CHARS),
        issues=issues,
        damage=run.contents.damage,
        rows=Markup(rows.packed(groups, more)),
        blocks=Markup(" ".join(parts["blocks"])),
        scripts=[asset(name) for name in ("report_parts.js", "report_charts.js", "report.js")],
    )


def _new_among(cases: Iterable[str], since: Since | None) -> int:
    """Return how many of these failing cases did not fail so before."""
    return sum(since.became.get(case) in _NEW for case in cases) if since else 0


def _where(group: FailureGroup) -> tuple[str, str]:
    """Return the files of a group, and its devices with versions."""
    files = dict.fromkeys(case.partition("::")[0] for case in group.cases)
    return first_names(files, 2), ", ".join(places(group.devices, group.versions))


def _since(group: FailureGroup, since: Since | None) -> tuple[str, str]:
    """Return how much of a group is new, and since when the others fail."""
    new = _new_among(group.cases, since)
    if since is None or new == len(group.cases):
        return "new" if new else "", ""
    began = min((since.began[case] for case in group.cases if case in since.began), default="")
    titles = (since.titles.get(since.became.get(case, "")) for case in group.cases)
    others = began[:10] or ", ".join({title: None for title in titles if title})
    return f"{new} new" if new else "", others


def evidence_of(cases: Iterable[CaseRecord], folder: Path) -> dict[str, str]:
    """Return the ends of readable logs of failed cases in this folder, up to 1 MiB in all."""
    names: tuple[list[str], list[str]] = [], []
    for record in cases:
        if record.is_bad:
            names[not record.is_unexpected].extend(record.logs)
    texts: dict[str, str] = {}
    room = _MOST_EVIDENCE_BYTES
    for name in dict.fromkeys(chain(*names)):
        if room > 0 and name.endswith(_TEXTS) and (data := _tail(folder, name)):
            texts[name] = data.decode("utf-8", "replace")
            room -= len(data)
    return texts


def _tail(folder: Path, name: str) -> bytes:
    """Return the end of a log; empty if it is no plain file of this folder, or unreadable."""
    try:
        with open_inside(folder, name) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _EVIDENCE_BYTES))
            return file.read(_EVIDENCE_BYTES)
    except OSError:
        return b""


def _seconds(duration: float) -> str:
    if duration < 60:
        return f"{duration:.2f} s"
    minutes, seconds = divmod(round(duration), 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    return f"{minutes // 60} h {minutes % 60:02} min"
