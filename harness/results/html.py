"""report.html: one page without network or assets, made from the journal's records."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup

from harness.errors.outgoing_text import printable
from harness.files.whole_file import write_whole
from harness.results.bisections import Listed, bisections_in, of_cases
from harness.results.drift import Output
from harness.results.forecast import forecast_of
from harness.results.grid import grids
from harness.results.journal import Contents
from harness.results.pages import link, outcome_bar, sparkline, template
from harness.results.record import CaseRecord, final_attempts, is_figure
from harness.results.summary import failure_groups, outputs_lines, totals

_MAX_SHOWN_CHARS: Final = 4000
_SHORT_CHARS: Final = 120


def html_text(
    contents: Contents,
    info: Mapping[str, Any],
    *,
    run: str,
    bisections: Sequence[Listed] = (),
    outputs: Sequence[Output] = (),
) -> str:
    """The whole page (pure but for loading the template).

    `bisections` are those of the same folder of reports; those of this run's tests are listed.
    `outputs` are those that cases have kept; what differs somewhere is shown.
    """
    cases = final_attempts(contents.records)
    last = {id(record) for record in cases}
    return template("harness.results", "report.html.j2").render(
        run=run,
        info=info,
        totals=totals(cases),
        bar=outcome_bar(totals(cases)),
        behind=outputs_lines(cases),
        duration=_seconds(sum(record.duration_s for record in cases)),
        groups=failure_groups(cases),
        cases=cases,
        grids=grids(cases),
        forecasts=[told for record in cases if (told := forecast_of(record))],
        drifting=[one for one in outputs if one.drifts],
        axes=_axes(cases),
        figure=_figure,
        state=_state,
        shown=_shown,
        short=_short,
        seconds=_seconds,
        link=link,
        issues=_issue_links(info),
        bisections=of_cases(bisections, (record.case for record in cases)),
        damage=contents.damage,
        events=contents.events,
        retries=[record for record in contents.records if id(record) not in last],
    )


def write_html(
    contents: Contents,
    info: Mapping[str, Any],
    path: Path,
    *,
    run: str,
    outputs: Sequence[Output] = (),
) -> None:
    """Writes the page, in a run's folder, in one step. Raises OSError."""
    found = bisections_in(path.parent.parent)
    text = html_text(contents, info, run=run, bisections=found, outputs=outputs)
    write_whole(path, printable(text).encode())


def _axes(cases: Sequence[CaseRecord]) -> list[str]:
    """The axes that tell the cases apart, in the order in which they first appear."""
    values: dict[str, set[str]] = {}
    for record in cases:
        for name in record.axes:
            values.setdefault(name, set())
    for record in cases:
        for name, seen in values.items():
            seen.add(json.dumps(record.axes.get(name), sort_keys=True))
    return [name for name, seen in values.items() if len(seen) > 1][:8]


def _state(record: CaseRecord) -> str:
    return "expected" if record.is_bad and record.expected else record.outcome


def _figure(value: object) -> str:
    """A measurement as it is shown, with a chart of a list of numbers."""
    if isinstance(value, list) and value and all(is_figure(item) for item in value):
        low, middle, high = min(value), statistics.median(value), max(value)
        text = f"{len(value)} values: min {low:,}, median {middle:,}, max {high:,}"
        return Markup("{} {}").format(text, sparkline(value))
    return _shown(value)


def _shown(value: object) -> str:
    if is_figure(value):
        return f"{value:,}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]} ..."


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHORT_CHARS else f"{text[: _SHORT_CHARS - 4]} ..."


def _seconds(duration: float) -> str:
    if duration < 60:
        return f"{duration:.2f} s"
    minutes, seconds = divmod(round(duration), 60)
    return (
        f"{minutes // 60} h {minutes % 60:02} min"
        if minutes >= 60
        else f"{minutes} min {seconds} s"
    )


def _issue_links(info: Mapping[str, Any]) -> dict[str, str]:
    """Where each known issue is explained; run.json could hold anything."""
    links = info.get("known_issues")
    pairs = links.items() if isinstance(links, Mapping) else ()
    return {str(name): str(link) for name, link in pairs if str(link).startswith("https://")}
