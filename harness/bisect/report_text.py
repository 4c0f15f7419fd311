"""A result as Markdown, ready to be a bug report (pure)."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any, Final

from harness.bisect.match import ELSE_GOOD

_SYMBOLS_SHOWN: Final = 8
_TITLE_CHARS: Final = 120
_SAID_CHARS: Final = 50
_MESSAGE_CHARS: Final = 4000


def bug_report(result: Mapping[str, Any]) -> str:
    """The report: what changed where, how to see it, both sides, every run."""
    answer = result["answer"]
    lines = [f"# {title(result)}", ""]
    lines += [f"**{answer['text']}**" if answer else "**The bisection is not over.**", ""]
    lines += [f"- {line}" for line in summary(result)]
    lines += ["", "## How to see it", "", "```", *commands(result), "```", ""]
    for edge in result["edges"]:
        lines += _sides(edge, several=len(result["edges"]) > 1)
    if result["grid"]:
        lines += ["## The grid", "", "```", result["grid"], "```", ""]
    for axis, found in result["libraries"].items():
        lines += [f"## What changed in the libraries of {axis}", "", *_libraries(found), ""]
    lines += ["## Every run", "", *_runs(result), ""]
    return "\n".join(lines)


def title(result: Mapping[str, Any]) -> str:
    """One line that names since when it fails, with what, and the case as far as that fits."""
    answer = result["answer"]
    error = (bad_side(result) or {}).get("error") or {}
    said = f"{', '.join(result['axes'])}: {answer['text'] if answer else 'not over'}"
    known = (error.get("api"), error.get("code"), error.get("symbol"))
    what = " ".join(str(part) for part in known if part)
    what = what or _shortened(" ".join((error.get("message") or "").split()), _SAID_CHARS)
    name = result["case"].rpartition("::")[2]
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


def bad_side(sides: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The side that is bad, of a result or of one of its edges, if there are two."""
    for name in ("before", "after"):
        side: Mapping[str, Any] | None = sides[name]
        if side is not None and side["answer"] == "bad":
            return side
    return None


def summary(result: Mapping[str, Any]) -> list[str]:
    """The circumstances, a line each."""
    answer = result["answer"]
    lines = [f"case: `{result['case']}`"]
    if answer and answer.get("direction") == "fix":
        lines.append("older versions are bad and newer ones good: what was found is the fix")
    for axis, better in ((answer or {}).get("newer_is_better") or {}).items():
        if answer["mattered"][axis]:
            lines.append(f"newer {axis}: {'better' if better else 'worse'}")
    if answer and answer["confidence"] is not None:
        lines.append(f"confidence: {100 * answer['confidence']:.1f} %")
    elif answer:
        lines.append("each answer was believed; --repeat auto is for tests that are flaky")
    for note in answer["notes"] if answer else ():
        lines.append(note)
    for axis, found in result["versions"].items():
        for version, build in found.items():
            if build["build_id"]:
                day = f", built on {build['date']}" if build["date"] else ""
                lines.append(f"{axis} {version}: build {build['build_id']}{day}")
    held = ", ".join(f"{axis} {version}" for axis, version in result["held"].items())
    if held:
        lines.append(f"held fixed: {held}")
    counts = result["match"] or "any failure"
    lines.append(f"counts as bad: {counts}")
    lines += _failed_otherwise(result)
    devices = sorted({str(run["device"]) for run in result["runs"] if run["device"]})
    lines.append(f"device: {', '.join(devices)} ({result['target']}, {result['backend']})")
    if answer:
        spoilt = f", {answer['unknown']} more spoilt by the lab" if answer["unknown"] else ""
        lines.append(f"runs: {answer['runs']}{spoilt}; {result['bound']['text']}")
    return lines


def _failed_otherwise(result: Mapping[str, Any]) -> list[str]:
    """Says how failures that told nothing could be told to count as good."""
    match = result["match"] or ""
    if not match or match.startswith("measurement") or match.endswith(ELSE_GOOD):
        return []
    ways = ("failed", "crashed", "hung")
    others = [run for run in result["runs"] if run["answer"] == "untestable"]
    number = sum(run["outcome"] in ways for run in others)
    hint = f'--match "...{ELSE_GOOD}" makes that good, where older versions fail so'
    return (
        [f"failed otherwise, which tells nothing: {number} of the runs; {hint}"] if number else []
    )


def commands(result: Mapping[str, Any]) -> list[str]:
    """A command for each side that runs the case there."""
    shown = [edge[name] for edge in result["edges"] for name in ("before", "after")]
    shown = shown or [side for side in (result["before"], result["after"]) if side is not None]
    places = [list(at) for at in dict.fromkeys(tuple(side["at"]) for side in shown)]
    return [command_at(result, at) for at in places] or [command_at(result, None)]


def command_at(result: Mapping[str, Any], at: list[str] | None) -> str:
    """The command that runs the case at a place, or with the usual versions."""
    versions = dict(result["held"])
    if at is not None:
        versions |= dict(zip(result["axes"], at, strict=True))
    words = ["pytest", "-m", "device", result["case"].partition("[")[0]]
    words += ["--only-case", result["case"], "--device", result["devices"][0]]
    words += ["--backend", result["backend"]] if result["backend"] != "htp" else []
    for axis, version in versions.items():
        path = result["paths"].get(axis, {}).get(version)
        # a path as a word of its own would be taken for one of tests
        words += [f"--{axis}={path}"] if path else [f"--{axis}", version]
    return shlex.join(words)


def _sides(edge: Mapping[str, Any], *, several: bool) -> list[str]:
    before, after = edge["before"], edge["after"]
    named = f" on {' and '.join(edge['axes'])}" if several else ""
    lines = [f"## Side by side{named}", "", f"| | {_at(before)} | {_at(after)} |", "|---|---|---|"]
    for name, values in _side_rows(before, after):
        lines.append(f"| {name} | {values[0]} | {values[1]} |")
    lines.append("")
    bad = bad_side(edge)
    if bad is not None and bad["error"]:
        lines += ["What it said:", "", "```", *_message(bad["error"]), "```", ""]
        lines += [f"Evidence: {', '.join(_folders(bad['evidence']))}", ""]
    return [*lines, f"### What preflight says{named}", "", *_preflight(edge["preflight"]), ""]


def _folders(paths: Iterable[str]) -> list[str]:
    """The outermost folders of these files."""
    folders = sorted({path.rpartition("/")[0] for path in paths})
    inner = {one for one in folders for other in folders if one.startswith(f"{other}/")}
    return [one for one in folders if one not in inner]


def _message(error: Mapping[str, Any]) -> list[str]:
    text = str(error["message"])[:_MESSAGE_CHARS].replace("```", "'''")
    return text.splitlines()


def _side_rows(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterable[tuple[str, tuple[str, str]]]:
    def both(pick: Any) -> tuple[str, str]:
        return cell(pick(before)), cell(pick(after))

    yield "answer", both(lambda side: side["answer"])
    yield "outcome", both(lambda side: side["outcome"])
    yield "code", both(lambda side: _code(side["error"]))
    yield "signature", both(lambda side: (side["error"] or {}).get("signature"))
    yield "runtime", both(lambda side: (side["runtime"] or {}).get("build_id"))
    names = dict.fromkeys([*(before["steps"] or {}), *(after["steps"] or {})])
    for name in names:
        yield name.replace("_", " "), both(lambda side, name=name: (side["steps"] or {}).get(name))


def cell(value: object) -> str:
    """A value as it fits into a cell of a table; what is not there is a dash."""
    if value is None:
        return "-"
    # a signature's <n> would be taken for a tag
    return " ".join(str(value).split()).replace("|", "\\|").replace("<", "&lt;")


def _code(error: Mapping[str, Any] | None) -> str | None:
    if error is None:
        return None
    parts = (error["api"], error["code"], error["symbol"])
    return " ".join(str(part) for part in parts if part is not None) or None


def _at(side: Mapping[str, Any]) -> str:
    return cell(" with ".join(side["at"]))


def preflight_silence(found: Mapping[str, Any] | None) -> str | None:
    """Why there is nothing to be shown of preflight; None if there is."""
    if found is None:
        return "Not known: one of the runs left no record."
    if not (found["gone"] or found["new"] or found["both"]):
        return "Nothing, of neither side."
    return None


def _preflight(found: Mapping[str, Any] | None) -> list[str]:
    silence = preflight_silence(found)
    if found is None or silence is not None:
        return [str(silence)]
    lines = []
    for name, title_ in (
        ("gone", "only of the older"),
        ("new", "only of the newer"),
        ("both", "of both"),
    ):
        lines += [
            f"- {title_}: {one['severity']} {one['code']}: {cell(one['explanation'])}"
            for one in found[name]
        ]
    return lines


def _libraries(found: Mapping[str, Any]) -> list[str]:
    lines = [f"- gone: {name} ({size:,} bytes)" for name, size in found["gone"].items()]
    lines += [f"- new: {name} ({size:,} bytes)" for name, size in found["new"].items()]
    for one in found["changed"]:
        sizes = f"{one['size_before']:,} -> {one['size_after']:,} bytes"
        lines.append(f"- {one['name']}: {sizes}")
        if one["problem"]:
            lines.append(f"  - cannot be compared: {one['problem']}")
        for key, what in (
            ("symbols_gone", "no longer exports"),
            ("symbols_new", "exports besides"),
            ("needs_gone", "no longer needs"),
            ("needs_new", "needs besides"),
        ):
            listed = one[key]
            if listed["count"]:
                # plain names tell more than mangled ones
                names = sorted(listed["names"], key=lambda name: name.startswith("_Z"))
                shown = ", ".join(f"`{name}`" for name in names[:_SYMBOLS_SHOWN])
                more = listed["count"] - _SYMBOLS_SHOWN
                lines.append(f"  - {what}: {shown}{f' and {more} more' if more > 0 else ''}")
    same = len(found["same"])
    return [*lines, f"- unchanged: {same} file{'' if same == 1 else 's'}"]


def _runs(result: Mapping[str, Any]) -> list[str]:
    axes = " | ".join(result["axes"])
    rule = "|".join("---" for _ in (*result["axes"], 1, 2, 3, 4, 5))
    lines = [f"| run | {axes} | answer | why | device | results |", f"|{rule}|"]
    for run in result["runs"]:
        at = " | ".join(cell(name) for name in run["at"])
        lines.append(
            f"| {run['number']} | {at} | {run['answer']} | {cell(run['why'])} "
            f"| {cell(run['device'])} | {cell(run['run'])} |"
        )
    return lines
