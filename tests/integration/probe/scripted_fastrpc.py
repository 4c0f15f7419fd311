"""Labelled failures of FastRPC: the real arm64 libraries under qemu, over our scripted libcdsprpc.

What the real libQnnHtp.so logs when FastRPC answers an error is recorded with its label in
tests/field/fastrpc-chains.tsv. `python -m tests.integration.probe.scripted_fastrpc FOLDER` records
it anew, where FOLDER has the libraries of a linux-arm64 runtime.
"""

from __future__ import annotations

import csv
import shlex
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.core.cache import BOARDS, cache_root
from harness.dsp.emulator import FASTRPC, build_fastrpc
from harness.models.source import Libraries, within_session
from harness.probe.build import ProbeBuilder
from harness.probe.plan import Plan, Settings
from harness.probe.plan_runner import ProbeRun, run_plan_locally
from harness.simulator.board import find_tools, soc_files

CHAINS: Final = Path(__file__).parents[2] / "field" / "fastrpc-chains.tsv"
BETWEEN: Final = " / "
WITHOUT: Final = "without "
"""Begins a script that takes a library away instead."""
_TIMEOUT_S: Final = 60


@dataclass(frozen=True)
class Chain:
    """A labelled failure: how it was made, how the process ended, and what was logged on the way.

    `ended` is the code of QnnDevice_create, or the signal as a negative number.
    """

    label: str
    script: str
    ended: int
    lines: tuple[str, ...]


class Board:
    """The arm64 libraries of a runtime with a scripted libcdsprpc beside them, under qemu."""

    def __init__(self, libraries: Iterable[Path], folder: Path) -> None:
        tools = find_tools()
        assert tools.libraries is not None
        self.root, self.libs = folder / "root", folder / "libs"
        self.libs.mkdir(parents=True)
        for library in libraries:
            (self.libs / library.name).symlink_to(library)
        for path, text in soc_files("SM8650", 557).items():
            shown = self.root / path.lstrip("/")
            shown.parent.mkdir(parents=True, exist_ok=True)
            shown.write_text(text)
        (self.root / "lib").symlink_to(tools.libraries)
        (self.libs / FASTRPC).symlink_to(build_fastrpc(tools.cross, cache_root() / BOARDS))
        probe = ProbeBuilder(cache_root() / "probe").build("linux-arm64")
        words = (tools.qemu, "-L", self.root, "-E", f"LD_LIBRARY_PATH={self.libs}", probe)
        self.emulated = folder / "probe"
        self.emulated.write_text(f"#!/bin/sh\nexec {shlex.join(map(str, words))}\n")
        self.emulated.chmod(0o755)

    def plan(self) -> Plan:
        """Opens the backend and its device, and closes them."""
        libraries = Libraries(
            backend=str(self.libs / "libQnnHtp.so"), system=str(self.libs / "libQnnSystem.so")
        )
        return within_session(libraries, (), (), Settings())

    def run(self, script: str) -> ProbeRun:
        """Run the probe over FastRPC that answers so."""
        if script.startswith(WITHOUT):
            library = self.libs / script.removeprefix(WITHOUT)
            away = library.rename(library.with_suffix(".away"))
            try:
                return self.run("")
            finally:
                away.rename(library)
        env = {"QNN_SCRIPTED_RPC": script}
        return run_plan_locally(self.emulated, self.plan(), env=env, timeout_s=_TIMEOUT_S)


def chain_of(label: str, script: str, run: ProbeRun) -> Chain:
    """The failure with its label."""
    device = next(step for step in run.transcript.steps if step.verb == "device-create")
    lines = [line.text.strip() for line in device.logs if line.level in ("error", "warn")]
    plain = dict.fromkeys(line.removeprefix("<E> ").removeprefix("<W> ") for line in lines)
    ended = device.code if run.signal is None else -run.signal
    return Chain(label, script, ended or 0, tuple(plain))


def recorded() -> list[Chain]:
    """The chains that are recorded in tests/field."""
    with CHAINS.open(newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file, delimiter="\t")
        return [
            Chain(
                row["label"],
                row["script"],
                int(row["ended"]),
                tuple(row["chain"].split(BETWEEN)) if row["chain"] else (),
            )
            for row in rows
        ]


def main(folder: Path) -> None:
    """Records all chains anew."""
    with tempfile.TemporaryDirectory() as scratch:
        board = Board(sorted(folder.glob("libQnn*.so")), Path(scratch))
        chains = [chain_of(old.label, old.script, board.run(old.script)) for old in recorded()]
    with CHAINS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(("label", "script", "ended", "chain"))
        for chain in chains:
            writer.writerow((chain.label, chain.script, chain.ended, BETWEEN.join(chain.lines)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
