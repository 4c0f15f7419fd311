"""Outputs of a session or a program, which its steps save on the device, kept with their run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.ground.files.whole_file import keep_whole
from harness.probe import Plan
from harness.run.bench.kept_outputs import MAX_BYTES, KeptOutput
from harness.verdict.results.run_folder import OUTPUTS

if TYPE_CHECKING:
    from harness.run.bench.case_bench import CaseBench, Observation

NamedShape = tuple[str, str, tuple[int, ...]]
"""Name, type and shape of an output."""


@dataclass(frozen=True)
class ToKeep:
    """What steps of a verb put out, with a file of what each is told against."""

    verb: str
    results: Sequence[NamedShape]
    references: Sequence[Path]
    against: str

    def kept(
        self, run_folder: Path, content: Callable[[int, int], bytes | None]
    ) -> list[KeptOutput]:
        """The outputs with their files; `content` gives that of one, by its number and its size."""
        made = []
        for at, (result, file) in enumerate(zip(self.results, self.references, strict=False)):
            size, own = file.stat().st_size, None
            found = content(at, size) if size <= MAX_BYTES else None
            if found is not None:
                digest = hashlib.sha256(found).hexdigest()[:16]
                own = run_folder / OUTPUTS / f"{digest}-{len(found)}.raw"
                keep_whole(own, found)
            made.append(KeptOutput(*result, None, None, own, file, self.against))
        return made


def run_keeping(
    case: CaseBench, run: Callable[[Plan], Observation], plan: Plan, outputs: ToKeep
) -> Observation:
    """Runs a plan, and keeps the outputs where there is something to tell them against."""
    if not outputs.references:
        return run(plan)
    with case.scratch() as folder:
        saved = {f"save.{at}": f"{folder}/{at}.raw" for at in range(len(outputs.references))}
        steps = tuple(
            replace(one, fields={**one.fields, **saved}) if one.verb == outputs.verb else one
            for one in plan.steps
        )
        seen = run(replace(plan, steps=steps))
        ran = [one for one in seen.run.transcript.steps if one.verb == outputs.verb]
        if not any(one.ok or one.error == "mismatch" for one in ran):
            return seen

        def fetch(at: int, size: int) -> bytes:
            return case.fetch(f"{folder}/{at}.raw", max_bytes=size)

        return seen.keeping(outputs.kept(case.run_folder, fetch))
