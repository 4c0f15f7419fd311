"""What a tracker is told of a cause: a case of it, its log, and where else it is (pure)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from harness.answers import as_code
from harness.ground.facts.axes import VERSIONS
from harness.verdict import CaseRecord, Part, split_node_id
from harness.verdict.results.coverage import VERDICTS

_LOG_LINES: Final = 12
_PLACES: Final = 20


class Example(Part):
    """A case that failed so: what it ran on and with, what was logged, where else the same fails.

    `logs` is its folder among the reports, `bundle` the command that packs it for others, if it can
    be packed.
    """

    ran: tuple[str, ...]
    log: tuple[str, ...]
    spread: tuple[str, ...]
    command: tuple[str, ...]
    logs: str | None = None
    bundle: tuple[str, ...] | None = None


def example_of(
    failing: Sequence[str], records: Mapping[str, CaseRecord], *, run: str, lab: str
) -> Example:
    """That of the shortest of the cases that fail of one cause in a run; `records` has all."""
    record = min((records[name] for name in failing), key=lambda one: one.duration_s)
    error = record.error
    chain = (
        [f"{one.source}: {one.symbol or one.hex or ''} {one.message}" for one in error.chain]
        if error
        else []
    )
    said = chain or (error.message.splitlines() if error else [])
    folder = record.logs[0].rpartition("/")[0] if record.logs else None
    packed = ["qnn-harness", "contexts", "bundle", record.case, "--run", f"reports/{run}"]
    return Example(
        ran=tuple(_ran(record)),
        log=tuple(" ".join(line.split())[:300] for line in said[:_LOG_LINES]),
        spread=tuple(_spread(set(failing), records)),
        command=tuple(_command(record, lab)),
        logs=f"reports/{run}/{folder}" if folder else None,
        bundle=tuple(packed) if record.measured("context_files") else None,
    )


def _ran(record: CaseRecord) -> Iterator[str]:
    device, runtime = record.device, record.runtime
    if device is not None:
        kind = (device.soc, device.target, "simulated" if device.simulated else None)
        yield f"device {device.name} ({', '.join(filter(None, kind))})"
        if build := (device.model_extra or {}).get("os_build"):
            yield f"OS {build}"
    if runtime is not None:
        yield f"QNN {runtime.qnn}, build {runtime.build_id or 'not known'}"
        yield from (f"ONNX Runtime {one}" for one in (runtime.ort,) if one)
        yield from (f"contexts by QNN {one}" for one in (runtime.contexts_by,) if one)


def _spread(failing: set[str], records: Mapping[str, CaseRecord]) -> Iterator[str]:
    """Where the tests that fail so were run, and how many cases of them fail so there."""
    tests = {records[name].test for name in failing}
    places: dict[str, list[bool]] = {}
    for one in records.values():
        if one.test in tests and one.standing in VERDICTS and one.device is not None:
            with_ = [f"{axis} {one.axes[axis]}" for axis in VERSIONS if one.axes.get(axis)]
            where = f"{one.device.name} ({one.device.soc or one.device.target}), {', '.join(with_)}"
            places.setdefault(where, []).append(one.case in failing)
    for where, fails in sorted(places.items(), key=lambda one: (not any(one[1]), one[0]))[:_PLACES]:
        yield f"{where}: {sum(fails)} of {len(fails)} fail so"


def _command(record: CaseRecord, lab: str) -> Iterator[str]:
    """What runs the case alone, from where the night was begun."""
    place = record.placement
    yield from ("pytest", "-m", "device", f"--only-case={record.case}", f"--lab={lab}")
    yield from (f"--device={one.name}" for one in (record.device,) if one)
    said = place.model_dump(exclude={"device", "engine"}) if place else {}
    yield from (f"--{axis}={value}" for axis, value in said.items() if value)
    yield split_node_id(record.case)[0]


def example_lines(example: Example) -> Iterator[str]:
    """The same in Markdown, in which all that others said is code."""
    yield f"- seen on: {', '.join(as_code(one, 300) for one in example.ran) or 'nothing'}"
    for title, listed in (("log", example.log), ("where", example.spread)):
        if listed:
            yield f"- {title}:"
            yield from (f"  - {as_code(line, 320)}" for line in listed)
    yield f"- to reproduce: {as_code(shlex.join(example.command), 2000)}"
    if example.logs:
        yield f"- what it left: {as_code(example.logs)}"
    if example.bundle:
        yield f"- packed for others by: {as_code(shlex.join(example.bundle), 2000)}"
