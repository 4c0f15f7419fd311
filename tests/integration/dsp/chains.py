"""Labelled failures with the DSP's half in them: the real skel runs, and something is made to fail.

What the real libQnnHtp.so logs in the step that fails first is recorded with its label in
tests/field/dsp-chains.tsv. `python -m tests.integration.dsp.chains` records it anew.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harness.core.cache import BOARDS, cache_root
from harness.dsp.dsp import DspLimits, DspPrograms
from harness.dsp.emulator import build_loader, find_qemu
from harness.models.compile import ContextStore
from harness.models.models import Model
from harness.models.source import Context
from harness.probe.build import ProbeBuilder
from harness.runtimes.catalog import Catalog
from tests.integration.dsp.board import DspBoard, Outcome, executes, frees, loads
from tests.integration.probe.scripted_fastrpc import BETWEEN

CHAINS: Final = Path(__file__).parents[2] / "field" / "dsp-chains.tsv"
QNN: Final = "2.51.0"
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
class DspChain:
    """A labelled failure: the step that failed first, its code (or `hangs`), what was logged."""

    label: str
    step: str
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
        "the skel is another version's": Made(skel="2.47.0"),
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
        if recipe.skel == "2.47.0":
            other = next(
                library for library in self._libraries(recipe.skel) if library.name == SKEL
            )
            (board.libs / SKEL).symlink_to(other)
        elif recipe.skel is not None and recipe.skel != SKEL:
            target = next(
                library for library in self._libraries(QNN) if library.name == recipe.skel
            )
            (board.libs / SKEL).symlink_to(target)
        steps = loads([self.context]) + executes(0, self.context, "raw")
        return board.run(steps, frees(1), recipe.script, timeout_s=HANG_S)

    def _libraries(self, version: str) -> list[Path]:
        files = self.catalog.runtime(version, "linux-arm64").files
        return [file.path for file in files if file.path.name.startswith("libQnn")]


def chain_of(label: str, outcome: Outcome) -> DspChain:
    steps = outcome.run.transcript.steps
    late = outcome.run.timed_out
    failed = next(step for step in steps if step.code or (late and step.code is None))
    lines = [line.text.strip() for line in failed.logs if line.level in ("error", "warn")]
    plain = dict.fromkeys(line.removeprefix("<E> ").removeprefix("<W> ") for line in lines)
    return DspChain(label, failed.verb, HANGS if late else str(failed.code), tuple(plain))


def recorded() -> list[DspChain]:
    """The chains that are recorded in tests/field."""
    with CHAINS.open(newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file, delimiter="\t")
        return [
            DspChain(
                row["label"],
                row["step"],
                row["ended"],
                tuple(row["chain"].split(BETWEEN)) if row["chain"] else (),
            )
            for row in rows
        ]


def main() -> None:
    cache = cache_root()
    catalog = Catalog(cache)
    store = ContextStore(cache, catalog, ProbeBuilder(cache / "probe"))
    programs = DspPrograms(find_qemu(cache / BOARDS).path, build_loader(cache / BOARDS))
    chains = Chains(programs, catalog, store.get(Model.parse("io-heavy-4mb"), QNN, 73))
    with CHAINS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(("label", "step", "ended", "chain"))
        for label, recipe in MADE.items():
            with tempfile.TemporaryDirectory() as scratch:
                chain = chain_of(label, chains.run(recipe, Path(scratch) / "board"))
            writer.writerow((chain.label, chain.step, chain.ended, BETWEEN.join(chain.lines)))
            print(chain.label, chain.step, chain.ended, file=sys.stderr)


if __name__ == "__main__":
    main()
