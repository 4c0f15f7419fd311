"""Capacity forecast: contexts packed into protection domains as the backend does it (pure).

The backend puts a context into the first domain with room for all that it reserves for it; one
context cannot span two (QAIRT SDK docs, "Multiple cDSP Sessions"). The size of a context and of a
domain is measured or given.

The HTP library, here the simulator, logs how much it reserves for each context that it loads, and
how much is left when it refuses one. The binary's metadata does not have it: it lacks the run list
and the buffer behind the VTCM.
"""

from __future__ import annotations

import contextlib
import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from harness.core.errors import InfraError
from harness.core.files import keep_whole, read_json
from harness.core.outgoing_text import counted
from harness.models.builtin_models import Model
from harness.models.context_cache import ContextStore
from harness.models.session_plan import Libraries, Move, schedule, session_start
from harness.probe.build import ProbeBuilder
from harness.probe.plan import Plan, Settings, Step, context_free, context_load
from harness.probe.plan_runner import ProbeRun, run_plan_locally
from harness.probe.transcript import StepResult, damage
from harness.runtimes.catalog import Catalog
from harness.runtimes.pypi import all_versions
from harness.runtimes.runtime import Runtime


@dataclass(frozen=True)
class Size:
    """Bytes that a context takes in its domain; `spill_fill` is a part of `total`."""

    total: int
    spill_fill: int = 0


@dataclass(frozen=True)
class Room:
    """Bytes of each protection domain, and the number of domains."""

    budget: int
    sessions: int = 1


@dataclass(frozen=True)
class RefusedLoad:
    """The first load that fails (from 0), its context, its bytes and those that it lacks."""

    load: int
    context: int
    bytes: int
    missing_bytes: int


@dataclass(frozen=True)
class Domain:
    """Contexts of a protection domain when nothing more fits, or when it is fullest."""

    contexts: tuple[int, ...]
    used_bytes: int


@dataclass(frozen=True)
class Forecast:
    """Outcome of a schedule: so many `loads` succeed, then one is `refused`, or none is."""

    loads: int
    refused: RefusedLoad | None
    domains: tuple[Domain, ...]

    @property
    def fits(self) -> bool:
        return self.refused is None


class _Loaded:
    """The contexts in one protection domain, which share the largest spill-fill buffer."""

    def __init__(self) -> None:
        self.contexts: dict[int, Size] = {}
        self._private = self._shared = 0

    @property
    def used(self) -> int:
        return self._private + self._shared

    def used_with(self, size: Size) -> int:
        return self._private + size.total - size.spill_fill + max(self._shared, size.spill_fill)

    def add(self, context: int, size: Size) -> None:
        self._private += size.total - size.spill_fill
        self._shared = max(self._shared, size.spill_fill)
        self.contexts[context] = size

    def free(self, context: int) -> None:
        if size := self.contexts.pop(context, None):
            self._private -= size.total - size.spill_fill
            self._shared = max((other.spill_fill for other in self.contexts.values()), default=0)


def forecast(
    sizes: Sequence[Size], moves: Iterable[Move], room: Room, *, share_spill_fill: bool = False
) -> Forecast:
    """Predict the outcome of moves; with `share_spill_fill` a domain has one buffer for all."""
    split_sizes = sizes if share_spill_fill else [Size(size.total) for size in sizes]
    loaded = [_Loaded() for _ in range(room.sessions)]

    def domains() -> tuple[Domain, ...]:
        return tuple(Domain(tuple(each.contexts), each.used) for each in loaded)

    def used(state: tuple[Domain, ...]) -> int:
        return sum(domain.used_bytes for domain in state)

    loads, fullest = 0, domains()
    for move in moves:
        if move.verb == "load":
            size = split_sizes[move.context]
            for domain in loaded:
                if domain.used_with(size) <= room.budget:
                    domain.add(move.context, size)
                    break
            else:
                missing = min(domain.used_with(size) for domain in loaded) - room.budget
                refused = RefusedLoad(loads, move.context, size.total, missing)
                return Forecast(loads, refused, domains())
            loads += 1
        elif move.verb == "free":
            fullest = max(fullest, domains(), key=used)
            for domain in loaded:
                domain.free(move.context)
    return Forecast(loads, None, max(fullest, domains(), key=used))


@dataclass(frozen=True)
class Alternative:
    """A different way to load the contexts: how many are loaded, and whether all fit."""

    change: str
    fits: bool
    loads: int


def changes(sizes: Sequence[Size], room: Room) -> list[Alternative]:
    """Return the usual alternatives to keeping all contexts loaded, with their outcomes."""
    count, resident = len(sizes), schedule(len(sizes), "resident").moves

    by_spill_fill = sorted(sizes, key=lambda size: -size.spill_fill)
    shared = forecast(by_spill_fill, resident, room, share_spill_fill=True)
    ways = {
        "shared spill-fill, largest first": shared,
        "sequential": forecast(sizes, schedule(count, "sequential").moves, room),
    }
    alternatives = [Alternative(way, outcome.fits, outcome.loads) for way, outcome in ways.items()]
    most = bisect_left(
        range(1, count + 1),
        True,
        key=lambda window: not forecast(sizes, schedule(count, "window", window).moves, room).fits,
    )
    if most:
        change = f"only the last {most} kept loaded (--residency window={most})"
        alternatives.append(Alternative(change, True, count))
    if all(size.total <= room.budget for size in sizes):
        enough = Room(room.budget, count)
        domains = [
            domain for domain in forecast(sizes, resident, enough).domains if domain.contexts
        ]
        alternatives.append(Alternative(counted(len(domains), "protection domain"), True, count))
    # its graphs take as much as their contexts did, measured with QNN 2.51
    fits = sum(size.total for size in sizes) <= room.budget
    alternatives.append(Alternative("merged into one context", fits, count if fits else 0))
    return alternatives


_BACKEND: Final = "libQnnHtp.so"
_HTP_ARCH: Final = 73
_MAX_KEPT_BYTES: Final = 4096
_KEPT: Final = TypeAdapter[Room | None](Room | None)
_TIMEOUT_S: Final = 120.0
_AT_ONCE: Final = 16
_ADDRESSES: Final = 4 << 30  # of one protection domain, with 32 bits
# As QNN 2.47 to 2.51 log them.
_RESERVED: Final = re.compile(r"Setting context \d+ reserved space to (\d{1,15})")
_SPILL_FILL: Final = re.compile(r"estimated PD size .* spillfill (\d{1,15}) B")
_LEFT: Final = re.compile(r"pd \d+ not chosen for context .* available space (\d{1,15})")
_LOG: Final = Settings(log_level="verbose", max_log_bytes=32 << 20, memory="off")


@dataclass(frozen=True)
class Unsized:
    """Reason why the library did not log the size of a context.

    `refused`: the context was not loaded. `code` is the error code, `logs` are the library's lines.
    """

    reason: str
    refused: bool = True
    code: int | None = None
    logs: tuple[str, ...] = ()


def reserved(probe: Path, backend_library: Path, files: Sequence[Path]) -> list[Size | Unsized]:
    """Return the bytes that the library reserves for the context of each file, loaded alone.

    Raises InfraError if the library does not work on this computer.
    """
    sizes: list[Size | Unsized] = []
    while len(sizes) < len(files):  # one of them may have ended the process
        steps: list[Step] = []
        for index, file in enumerate(files[len(sizes) :][:_AT_ONCE]):
            # after a cleanup a step runs even if those before it failed
            steps += [Step("cleanup"), context_load(index, str(file)), context_free(index)]
        run = _run(probe, backend_library, steps)
        loads = [step for step in run.transcript.steps if step.verb == "context-load"]
        begun = [step for step in loads if step.begun]
        if not begun:
            raise InfraError(f"{backend_library.name} loads no context on this computer")
        ended = "did not finish" if run.timed_out else "crashed"
        sizes += [_size_of(step, ended) for step in begun]
    return sizes


def _size_of(step: StepResult, ended: str) -> Size | Unsized:
    logs = tuple(line.text for line in step.logs)
    text = "\n".join(logs)
    total = _RESERVED.search(text)
    if total is None:
        reason = (
            ended if step.unfinished else f"code {step.code}" if step.code else "no reason given"
        )
        return Unsized(f"{step.message or step.error or reason}", not step.ok, step.code, logs)
    spill_fill = (int(match[1]) for match in _SPILL_FILL.finditer(text))
    return Size(int(total[1]), max(spill_fill, default=0))


def room(probe: Path, backend_library: Path, file: Path) -> Room | None:
    """Measure how much the library can reserve; None if it refuses nothing.

    Loads the context of a small file until it is refused, or all addresses of a domain are full.
    Raises InfraError if it fails in another way.
    """
    (size,) = reserved(probe, backend_library, [file])
    if isinstance(size, Unsized):
        raise InfraError(f"{backend_library.name} does not report reserved memory: {size.reason}")
    loads = (context_load(index, str(file)) for index in range(_ADDRESSES // size.total + 1))
    run = _run(probe, backend_library, loads)
    failure = run.transcript.first_failure
    if failure is None:
        return None
    free = [int(match[1]) for line in failure.logs for match in _LEFT.finditer(line.text)]
    if failure.verb != "context-load" or not free:
        problem = failure.message or failure.error or f"code {failure.code}"
        raise InfraError(f"{backend_library.name}: {failure.verb} {failure.context}: {problem}")
    loaded = sum(step.ok for step in run.transcript.steps if step.verb == "context-load")
    # each domain that has no room left says so
    return Room((loaded * size.total + sum(free)) // len(free), len(free))


def calibrated_room(cache: Path, catalog: Catalog, runtime: Runtime) -> Room | None:
    """Return how much a runtime can reserve; None if it refuses nothing.

    It is measured once, and cached by the library's digest. Raises as `room`, and as
    `ContextStore.get` for the context that it loads.
    """
    library = runtime.library(_BACKEND)
    (sha256,) = [file.sha256 for file in runtime.files if file.path == library]
    path = cache / "calibrations" / f"{sha256}.json"
    with contextlib.suppress(OSError, ValueError):
        return _KEPT.validate_python(read_json(path, _MAX_KEPT_BYTES))
    probes = ProbeBuilder(cache / "probe")
    # all runtimes load a context of the oldest compiler
    small = ContextStore(cache, catalog, probes).get(Model("tiny"), all_versions()[0], _HTP_ARCH)
    measured = room(probes.build("linux-x64"), library, small.path)
    keep_whole(path, _KEPT.dump_json(measured))
    return measured


def _run(probe: Path, backend_library: Path, steps: Iterable[Step]) -> ProbeRun:
    opened = tuple(session_start(Libraries(str(backend_library), None)))
    run = run_plan_locally(probe, Plan((*opened, *steps), _LOG), env={}, timeout_s=_TIMEOUT_S)
    for step in run.transcript.steps[: len(opened)]:
        if step.failed:
            reason = step.message or step.error or f"code {step.code}"
            raise InfraError(f"{backend_library.name} does not work here: {step.verb}: {reason}")
    if problem := damage(run.transcript):
        raise InfraError(problem)
    return run
