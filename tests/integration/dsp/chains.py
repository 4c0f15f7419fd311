"""Labelled failures of FastRPC and of the DSP: what the real libQnnHtp.so for arm64 logs of them.

They are recorded with their labels in tests/field: fastrpc-chains.tsv with a libcdsprpc.so that
answers by a script, dsp-chains.tsv with the real skel behind it, where something is made to fail.
`python -m tests.integration.dsp.chains` records them anew.
"""

import csv
import itertools
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harness.core.state_folders import BOARDS, cache_root
from harness.dsp.emulator import build_loader, find_qemu
from harness.dsp.simulated_dsp import DspLimits, DspPrograms
from harness.models.builtin_models import Model
from harness.models.context_cache import ContextStore
from harness.models.session_plan import Context
from harness.probe.build import ProbeBuilder
from harness.probe.transcript import StepResult
from harness.runtimes.catalog import Catalog
from tests.integration.dsp.board import DspBoard, Outcome, executes, frees, loads

_FIELD: Final = Path(__file__).parents[2] / "field"
SCRIPTED, WITH_SKEL = _FIELD / "fastrpc-chains.tsv", _FIELD / "dsp-chains.tsv"
BETWEEN: Final = " / "
WITHOUT: Final = "without "
"""Begins a script that takes a library away instead."""
QNN: Final = "2.51.0"
OLDER: Final = "2.47.0"
SKEL: Final = "libQnnHtpV73Skel.so"
HANGS: Final = "hangs"
HANG_S: Final = 20.0


@dataclass(frozen=True)
class Made:
    """The recipe of a failure: a script, limits of the DSP, another file in the skel's place."""

    script: str = ""
    limits: Mapping[str, int] = field(default_factory=dict)
    skel: str | None = SKEL


@dataclass(frozen=True)
class Chain:
    """A labelled failure: the script that made it or the step that failed first, its code (`hangs`,
    or a signal as a negative number), and what was logged on the way.
    """

    label: str
    script_or_step: str
    ended: str
    lines: tuple[str, ...]


_CALLS: Final = MappingProxyType(
    {
        1: "is configured",
        2: "is asked for its build",
        3: "is asked for its state",
        4: "maps the queue's memory",
        6: "is told the level of logs",
        7: "is asked for its VTCM",
        12: "maps a graph's memory",
        15: "makes the context",
        16: "executes",
        17: "frees the context",
    }
)

MADE: Final[Mapping[str, Made]] = MappingProxyType(
    {f"the domain dies as it {action}": Made(f"invoke@{n}=die;") for n, action in _CALLS.items()}
    | {
        "the domain dies as it begins polling": Made("invoke@5=die;"),
        "the domain dies as the skel is opened": Made("open=die;"),
        "the domain dies as memory is mapped": Made("map@3=die;"),
        "the DSP does not come back": Made("invoke@12=die-for-good;"),
        "the DSP is gone as a domain is asked for its state": Made("invoke@3=0x68;"),
        "no memory as the skel is asked for its build": Made("invoke@2=0x80000402;"),
        "no memory is mapped": Made("map@1=1;"),
        "no queue is made": Made("queue=0x80000402;"),
        "memory without a file": Made("fd=-1;"),
        "an execution is never answered": Made("invoke@16=never;"),
        "the skel never opens": Made("open=never;"),
        "the skel is not there, and no unsigned domain is given": Made(
            skel=None, limits={"unsigned_pd": 0}
        ),
        "the skel is not there": Made(skel=None),
        "the skel is another arch's": Made(skel="libQnnHtpV75Skel.so"),
        "the skel is the CPU's": Made(skel="libQnnHtp.so"),
        "the skel is another version's": Made(skel=OLDER),
        "no session is left": Made(limits={"sessions": 0}),
        "no unsigned domain is given": Made(limits={"unsigned_pd": 0}),
        "little can be mapped": Made(limits={"mapped_mb": 3}),
    }
)


@dataclass(frozen=True)
class Chains:
    """The maker of failures: libraries by name, those of another version, a context."""

    programs: DspPrograms
    catalog: Catalog
    context: Context

    def run(self, recipe: Made, folder: Path) -> Outcome:
        """One failure, on a board in an empty folder."""
        board = DspBoard(self._libraries(QNN), folder, self.programs, DspLimits(**recipe.limits))
        if recipe.skel != SKEL:
            (board.libs / SKEL).unlink()
        if recipe.skel is not None and recipe.skel != SKEL:
            version, name = (recipe.skel, SKEL) if recipe.skel == OLDER else (QNN, recipe.skel)
            (board.libs / SKEL).symlink_to(
                next(file for file in self._libraries(version) if file.name == name)
            )
        steps = loads([self.context]) + executes(0, self.context, "raw")
        return board.run(steps, frees(1), recipe.script, timeout_s=HANG_S)

    def _libraries(self, version: str) -> list[Path]:
        files = self.catalog.runtime(version, "linux-arm64").files
        return [file.path for file in files if file.path.name.startswith("libQnn")]

    def run_script(self, script: str, folder: Path) -> Outcome:
        """Opens the backend and its device over FastRPC that answers so, without a DSP."""
        board = DspBoard(self._libraries(QNN), folder, None, soc=("SM8650", 557))
        if script.startswith(WITHOUT):
            (board.libs / script.removeprefix(WITHOUT)).unlink()
            script = ""
        return board.run(script=script)


def _lines(step: StepResult) -> tuple[str, ...]:
    logged = (line.text.strip() for line in step.logs if line.level in ("error", "warn"))
    return tuple(dict.fromkeys(re.sub("^<[EW]> ", "", line) for line in logged))


def chain_of(label: str, outcome: Outcome) -> Chain:
    """The failure of a run with the skel."""
    late = outcome.run.timed_out
    steps = outcome.run.transcript.steps
    failed = next(step for step in steps if step.code or (late and step.code is None))
    return Chain(label, failed.verb, HANGS if late else str(failed.code), _lines(failed))


def scripted_chain_of(label: str, script: str, outcome: Outcome) -> Chain:
    run = outcome.run
    device = next(step for step in run.transcript.steps if step.verb == "device-create")
    ended = device.code or 0 if run.signal is None else -run.signal
    return Chain(label, script, str(ended), _lines(device))


def recorded(file: Path) -> list[Chain]:
    """The chains of one of the files."""
    with file.open(newline="", encoding="utf-8") as stream:
        _, *rows = csv.reader(stream, delimiter="\t")
    return [
        Chain(label, made, ended, tuple(chain.split(BETWEEN)) if chain else ())
        for label, made, ended, chain in rows
    ]


def record(file: Path, column: str, chains: Iterable[Chain]) -> None:
    rows = [(*astuple(chain)[:3], BETWEEN.join(chain.lines)) for chain in chains]
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, delimiter="\t", lineterminator="\n")
        writer.writerows([("label", column, "ended", "chain"), *rows])


def main() -> None:
    cache = cache_root()
    catalog = Catalog(cache)
    store = ContextStore(cache, catalog, ProbeBuilder(cache / "probe"))
    programs = DspPrograms(find_qemu(cache / BOARDS).path, build_loader(cache / BOARDS))
    chains = Chains(programs, catalog, store.get(Model.parse("io-heavy-4mb"), QNN, 73))
    with tempfile.TemporaryDirectory() as scratch:
        boards = (Path(scratch, str(number)) for number in itertools.count())
        made = [chain_of(label, chains.run(recipe, next(boards))) for label, recipe in MADE.items()]
        scripts = [(chain.label, chain.script_or_step) for chain in recorded(SCRIPTED)]
        scripted = [
            scripted_chain_of(label, script, chains.run_script(script, next(boards)))
            for label, script in scripts
        ]
    record(WITH_SKEL, "step", made)
    record(SCRIPTED, "script", scripted)


if __name__ == "__main__":
    main()
