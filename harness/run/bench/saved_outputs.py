"""Outputs of a session or a program, which its steps save on the device, kept with their run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.ground.files.whole_file import keep_whole
from harness.probe.plan import Plan
from harness.run.bench.kept_outputs import MAX_BYTES, KeptOutput
from harness.verdict.results.run_folder import OUTPUTS

if TYPE_CHECKING:
    from harness.run.bench.case_session import CaseSession, Observation

NamedShape = tuple[str, str, tuple[int, ...]]
"""Name, type and shape of an output."""


@dataclass(frozen=True)
class ToKeep:
    """What steps of a verb put out, with a file of what each is told against.

    `sample` names the inputs that it comes of, where there are several sets.
    """

    verb: str
    results: Sequence[NamedShape]
    references: Sequence[Path]
    against: str
    sample: str = ""

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
            made.append(KeptOutput(*result, None, None, own, file, self.against, "", self.sample))
        return made


def run_keeping(
    case: CaseSession, run: Callable[[Plan], Observation], plan: Plan, outputs: Sequence[ToKeep]
) -> Observation:
    """Runs a plan, and keeps the outputs where there is something to tell them against.

    Steps of their verb belong to each of them, in turn, as many to one as to another.
    """
    numbers = [at for at, one in enumerate(plan.steps) if one.verb == outputs[0].verb]
    each = len(numbers) // len(outputs)
    with case.scratch() if outputs[0].references else nullcontext("") as folder:
        steps = list(plan.steps)
        for place, number in enumerate(numbers):
            at = place // each
            names = range(len(outputs[at].references))
            saved = {f"save.{output}": f"{folder}/{at}.{output}.raw" for output in names}
            steps[number] = replace(steps[number], fields={**steps[number].fields, **saved})
        seen = run(replace(plan, steps=tuple(steps)))
        kept, done = list[KeptOutput](), seen.run.transcript.steps
        for at, one in enumerate(outputs):
            mine = numbers[at * each : (at + 1) * each]
            if any(step.ok or step.error == "mismatch" for step in done if step.step in mine):

                def fetch(output: int, size: int, at: int = at) -> bytes:
                    return case.fetch(f"{folder}/{at}.{output}.raw", max_bytes=size)

                kept += one.kept(case.run_folder, fetch)
        return seen.keeping(kept)
