"""What a runtime reserves for contexts, and how much it has for that, as the real library says.

The HTP library, here the simulator, logs what it reserves for each context that it loads, and what
is left when it refuses one. Nothing of that is in the binary's metadata: the run list and the
buffer behind the VTCM are not.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from harness.contexts.capacity.packing import Room, Size
from harness.contexts.compiler.compile import ContextStore
from harness.contexts.compiler.models import Model
from harness.contexts.context.session_plan import Libraries, session_start
from harness.ground.errors import InfraError
from harness.ground.files.whole_file import keep_whole, read_json
from harness.libraries.runtimes.catalog import Catalog
from harness.libraries.runtimes.pypi import all_versions
from harness.libraries.runtimes.runtime import Runtime
from harness.probe.build import ProbeBuilder
from harness.probe.plan import Plan, Settings, Step, context_free, context_load
from harness.probe.plan_runner import ProbeRun, run_plan_locally
from harness.probe.transcript import StepResult
from harness.probe.wholeness import damage

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
class Silent:
    """Why the library said nothing of what a context takes.

    `refused`: it did not load it. `code` is its code and `said` are its lines, if it gave some.
    """

    reason: str
    refused: bool = True
    code: int | None = None
    said: tuple[str, ...] = ()


def reserved(probe: Path, backend_library: Path, files: Sequence[Path]) -> list[Size | Silent]:
    """What the library reserves for the context of each file, loaded alone.

    Raises InfraError if the library does not work on this computer.
    """
    found: list[Size | Silent] = []
    while len(found) < len(files):
        found += _reserved(probe, backend_library, files[len(found) :][:_AT_ONCE])
    return found


def _reserved(probe: Path, backend_library: Path, files: Sequence[Path]) -> list[Size | Silent]:
    """As `reserved`, of the files that one process gets to before one of them ends it."""
    steps: list[Step] = []
    for at, file in enumerate(files):
        # behind a cleanup each step is tried, whatever came of those before it
        steps += [Step("cleanup"), context_load(at, str(file)), context_free(at)]
    run = _run(probe, backend_library, steps)
    loads = [step for step in run.transcript.steps if step.verb == "context-load" and step.begun]
    if not loads:
        raise InfraError(f"{backend_library.name} loads nothing on this computer")
    ended = "did not come to an end" if run.timed_out else "crashed"
    return [_said(step, ended) for step in loads]


def _said(step: StepResult, ended: str) -> Size | Silent:
    text = "\n".join(line.text for line in step.logs)
    total = _RESERVED.search(text)
    if total is None:
        why = ended if step.unfinished else f"code {step.code}" if step.code else "no word"
        said = tuple(line.text for line in step.logs)
        return Silent(f"{step.message or step.error or why}", not step.ok, step.code, said)
    spill_fill = (int(found[1]) for found in _SPILL_FILL.finditer(text))
    return Size(int(total[1]), max(spill_fill, default=0))


def room(probe: Path, backend_library: Path, file: Path) -> Room | None:
    """How much the library has to reserve of; None if it refuses nothing.

    Loads the context of a small file until it is refused, or all addresses of a domain are full.
    Raises InfraError if it fails in another way.
    """
    (size,) = reserved(probe, backend_library, [file])
    if isinstance(size, Silent):
        raise InfraError(f"{backend_library.name} does not say what it reserves: {size.reason}")
    loads = (context_load(at, str(file)) for at in range(_ADDRESSES // size.total + 1))
    run = _run(probe, backend_library, loads)
    failure = run.transcript.first_failure
    if failure is None:
        return None
    left = [int(found[1]) for line in failure.logs for found in _LEFT.finditer(line.text)]
    if failure.verb != "context-load" or not left:
        said = failure.message or failure.error or f"code {failure.code}"
        raise InfraError(f"{backend_library.name}: {failure.verb} {failure.context}: {said}")
    loaded = sum(step.ok for step in run.transcript.steps if step.verb == "context-load")
    # each domain that has no room left says so
    return Room((loaded * size.total + sum(left)) // len(left), len(left))


def calibrated_room(
    cache: Path, catalog: Catalog, runtime: Runtime, *, anew: bool = False
) -> Room | None:
    """How much a runtime has to reserve of; None if it refuses nothing.

    It is measured once, or `anew`, and kept by the content of the library. Raises as `room`, and as
    `ContextStore.get` for the context that it takes.
    """
    library = runtime.library(_BACKEND)
    (sha256,) = [file.sha256 for file in runtime.files if file.path == library]
    kept = cache / "calibrations" / f"{sha256}.json"
    if not anew:
        with contextlib.suppress(OSError, ValueError):
            return _KEPT.validate_python(read_json(kept, _MAX_KEPT_BYTES))
    probes = ProbeBuilder(cache / "probe")
    # the oldest: all runtimes take it
    small = ContextStore(cache, catalog, probes).get(Model("tiny"), all_versions()[0], _HTP_ARCH)
    found = room(probes.build("linux-x64"), library, small.path)
    keep_whole(kept, _KEPT.dump_json(found))
    return found


def _run(probe: Path, backend_library: Path, steps: Iterable[Step]) -> ProbeRun:
    opened = tuple(session_start(Libraries(str(backend_library), None)))
    run = run_plan_locally(probe, Plan((*opened, *steps), _LOG), env={}, timeout_s=_TIMEOUT_S)
    for step in run.transcript.steps[: len(opened)]:
        if step.failed:
            said = step.message or step.error or f"code {step.code}"
            raise InfraError(f"{backend_library.name} does not work here: {step.verb}: {said}")
    if problem := damage(run.transcript):
        raise InfraError(problem)
    return run
