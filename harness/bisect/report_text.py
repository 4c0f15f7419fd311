"""A result as Markdown, ready to be a bug report, and as a page (pure but for the templates)."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from harness.bisect.match import ELSE_GOOD, Unmeasured, figure, parse_match
from harness.bisect.result import (
    AxisAnswer,
    BisectionResult,
    EdgeShape,
    GridAnswer,
    PreflightShape,
    SideShape,
)
from harness.errors import ConfigError
from harness.history.performance import EFFECT, judge, least_told
from harness.history.units import known_to
from harness.report.pages import clip, link, template
from harness.runtimes.difference import NameList

_SYMBOLS_SHOWN: Final = 8
_TITLE_CHARS: Final = 120
_SAID_CHARS: Final = 50
_SHOWN_CHARS: Final = 4000


def bug_report(result: BisectionResult) -> str:
    """What changed where, how to see it, both sides, every run: as Markdown."""
    return template("harness.bisect", "report.md.j2").render(
        _told(result), cell=cell, some_of=_some_of, outermost_folders=_outermost_folders
    )


def page_of(result: BisectionResult) -> str:
    """The same and the whole grid, as a page without network or assets."""
    cells = {tuple(one.at): one for one in result.cells or ()}
    rows, columns = [result.candidates[axis] for axis in result.axes] if cells else ([], [])
    return template("harness.bisect", "report.html.j2").render(
        _told(result), rows=rows, columns=columns, cells=cells, shown=_shown, link=link
    )


def _told(result: BisectionResult) -> dict[str, Any]:
    """What both templates tell."""
    return {
        "result": result,
        "title": title(result),
        "doubts": doubts(result),
        "summary": summary(result),
        "commands": commands(result),
        "side_rows": _side_rows,
        "bad_side": bad_side,
        "silence": _preflight_silence,
    }


def held_text(held: Mapping[Any, str]) -> str:
    """The versions at which axes are held."""
    return ", ".join(f"{axis} {version}" for axis, version in held.items())


def title(result: BisectionResult) -> str:
    """One line that names since when it fails, with what, and the case as far as that fits."""
    answer = result.answer
    bad = bad_side(result)
    error = bad.error if bad is not None else None
    on = f" {'with' if result.engine else 'on'} {result.on}" if result.on else ""
    said = f"{', '.join(result.axes)}{on}: {answer.text if answer else 'not over'}"
    message = error.message if error is not None else ""
    what = (error.call if error else "") or _shortened(" ".join(message.split()), _SAID_CHARS)
    name = result.case.rpartition("::")[2]
    text = _shortened(" ".join(said.split()), _TITLE_CHARS)
    # a case's name is one long word: all of it, or the test's alone, or none
    names: tuple[list[str], ...] = ([name], [name.partition("[")[0]], [])
    for words in ([what, *found] for found in names):
        whole = "; ".join([text, *(" ".join(word.split()) for word in words if word)])
        if len(whole) <= _TITLE_CHARS:
            return whole
    return text


def _shortened(text: str, most: int) -> str:
    """At most so many characters, with whole words only."""
    if len(text) <= most:
        return text
    kept, space, _ = text[: most - 3].rpartition(" ")
    return f"{kept.rstrip(',;') if space else text[: most - 4]} ..."


def bad_side(sides: BisectionResult | EdgeShape) -> SideShape | None:
    """The side that is bad, of a result or of one of its edges, if there are two."""
    shown = (sides.before, sides.after)
    return next((side for side in shown if side is not None and side.answer == "bad"), None)


def summary(result: BisectionResult) -> list[str]:
    """The circumstances, a line each."""
    answer = result.answer
    lines = [f"case: `{result.case}`"]
    if isinstance(answer, GridAnswer):
        for axis, better in (answer.newer_is_better or {}).items():
            if answer.mattered[axis]:
                lines.append(f"newer {axis}: {'better' if better else 'worse'}")
    if answer and answer.confidence is not None:
        lines.append(f"confidence: {100 * answer.confidence:.1f} %")
    elif answer and result.repeat == "judged":
        lines.append("each answer is of as many runs as it took to tell it from noise")
    elif answer and isinstance(result.repeat, int):
        lines.append("each answer was believed; --repeat auto is for tests that are flaky")
    lines += answer.notes if answer else []
    for axis, found in result.versions.items():
        for version, build in found.items():
            if build.build_id:
                day = f", built on {build.date}" if build.date else ""
                lines.append(f"{axis} {version}: build {build.build_id}{day}")
    if held := held_text(result.held):
        lines.append(f"held fixed: {held}")
    lines.append(f"counts as bad: {result.match or 'any failure'}")
    lines += [*_failed_otherwise(result), *_beside_noise(result)]
    devices = sorted({str(run.device) for run in result.runs if run.device})
    lines.append(f"device: {', '.join(devices)} ({result.target}, {result.backend})")
    if answer:
        spoilt = f", {answer.unknown} more spoilt by the lab" if answer.unknown else ""
        lines.append(f"runs: {answer.runs}{spoilt}; {result.bound.text}")
    return lines


def _failed_otherwise(result: BisectionResult) -> list[str]:
    """Says how failures that told nothing could be told to count as good."""
    match = result.match or ""
    if not match or match.startswith(("measurement", "drift:")) or match.endswith(ELSE_GOOD):
        return []
    ways = ("failed", "crashed", "hung")
    others = [run for run in result.runs if run.answer == "untestable"]
    number = sum(run.outcome in ways for run in others)
    hint = f'--match "...{ELSE_GOOD}" makes that good, where older versions fail so'
    return (
        [f"failed otherwise, which tells nothing: {number} of the runs; {hint}"] if number else []
    )


def _beside_noise(result: BisectionResult) -> list[str]:
    """Of a change that times tell: whether noise alone would do that, judged as `compare` does.

    All runs of versions before it stand beside all runs of those after it, whatever they answered.
    """
    before, after = result.before, result.after
    compared = parse_match(result.match).comparison if result.match else None
    if not isinstance(result.answer, AxisAnswer) or before is None or after is None:
        return []
    order = result.candidates[result.axes[0]]
    at = order.index(before.at[0])
    places = [(order.index(run.at[0]), run.number, run.record) for run in result.runs]
    records = sorted(places, key=lambda one: one[:2])
    lines = []
    for name in compared.times if compared else ():
        sides: tuple[list[float], list[float]] = [], []
        for version, _, record in records:
            with contextlib.suppress(Unmeasured):
                if record is not None and record.outcome == "passed":
                    sides[version > at].append(figure(record.measurements, name))
        if all(sides):
            try:
                step = [known_to(name)]
                told = judge([name], [name], [sides[0]], [sides[1]], known_to=step)
            except ConfigError as error:
                return [f"not judged beside noise: {error}"]
            (change,) = told.changes
            lines.append(
                f"{name} beside noise: {change.verdict}, x {change.ratio:.3g} after the change "
                f"({change.interval})"
            )
    return lines


def doubts(result: BisectionResult) -> list[str]:
    """What stands before the answer: that times differ by more than what was asked about.

    Noise is learned from how the runs of each version differ.
    """
    compared = parse_match(result.match).comparison if result.match else None
    if compared is None:
        return []
    measured: dict[tuple[str, ...], list[Mapping[str, object]]] = {}
    for run in result.runs:
        if run.record is not None and run.record.outcome == "passed":
            measured.setdefault(tuple(run.at), []).append(run.record.measurements)
    lines = []
    for name in compared.noisy:
        rows: list[list[float]] = []
        for figures in measured.values():
            with contextlib.suppress(Unmeasured):
                rows.append([figure(one, name) for one in figures])
        # the first row is the one that is judged, by its own noise and that of the others
        rows.sort(key=len, reverse=True)
        with contextlib.suppress(ConfigError):
            tells = least_told(rows, known_to(name))
            if tells is not None and tells > max(compared.factor, 1 + EFFECT):
                lines.append(
                    f"this computer is too noisy to tell less than x {tells:.3g} of {name}"
                )
    return lines


def commands(result: BisectionResult) -> list[str]:
    """A command for each side that runs the case there."""
    shown = [side for edge in result.edges for side in (edge.before, edge.after)]
    shown = shown or [side for side in (result.before, result.after) if side is not None]
    points = [list(at) for at in dict.fromkeys(tuple(side.at) for side in shown)]
    return [command_at(result, at) for at in points] or [command_at(result, None)]


def command_at(result: BisectionResult, at: list[str] | None) -> str:
    """The command that runs the case at a point, or with the usual versions."""
    versions = dict(result.held)
    if at is not None:
        versions |= dict(zip(result.axes, at, strict=True))
    words = ["pytest", "-m", "device", result.case.partition("[")[0]]
    words += ["--only-case", result.case, "--device", result.devices[0]]
    words += ["--backend", result.backend] if result.backend != "htp" else []
    for axis, version in versions.items():
        path = result.paths.get(axis, {}).get(version)
        # a path as a word of its own would be taken for one of tests
        words += [f"--{axis}={path}"] if path else [f"--{axis}", version]
    return shlex.join(words)


def _outermost_folders(paths: Iterable[str]) -> list[str]:
    """The outermost folders of these files."""
    folders = sorted({path.rpartition("/")[0] for path in paths})
    inner = {one for one in folders for other in folders if one.startswith(f"{other}/")}
    return [one for one in folders if one not in inner]


def _side_rows(edge: EdgeShape) -> Iterator[tuple[str, object, object]]:
    """What is said of the older and of the newer side."""
    old, new = edge.before, edge.after
    yield "answer", old.answer, new.answer
    yield "outcome", old.outcome, new.outcome
    failed, ran = (old.error, new.error), (old.runtime, new.runtime)
    yield "code", failed[0] and (failed[0].call or None), failed[1] and (failed[1].call or None)
    yield "signature", failed[0] and failed[0].signature, failed[1] and failed[1].signature
    yield "runtime", ran[0] and ran[0].build_id, ran[1] and ran[1].build_id
    before, after = old.steps or {}, new.steps or {}
    for name in dict.fromkeys([*before, *after]):
        yield name.replace("_", " "), before.get(name), after.get(name)


def cell(value: object) -> str:
    """A value as it fits into a cell of a table; what is not there is a dash."""
    if value is None:
        return "-"
    # a signature's <n> would be taken for a tag
    return " ".join(str(value).split()).replace("|", "\\|").replace("<", "&lt;")


def _preflight_silence(found: PreflightShape | None) -> str | None:
    """Why there is nothing to be shown of preflight; None if there is."""
    if found is None:
        return "Not known: one of the runs left no record."
    if not (found.gone or found.new or found.both):
        return "Nothing, of neither side."
    return None


def _some_of(listed: NameList) -> str:
    """The first names of a list; plain ones before mangled ones, which tell less."""
    names = sorted(listed.names, key=lambda name: name.startswith("_Z"))[:_SYMBOLS_SHOWN]
    more = listed.count - len(names)
    return ", ".join(f"`{name}`" for name in names) + (f" and {more} more" if more > 0 else "")


def _shown(value: object) -> str:
    return "-" if value is None else clip(str(value), _SHOWN_CHARS)
