"""Fetches what is likely to be wanted next, for as long as a bisection lasts.

A run makes ready what may come next, too, but ends with its case: what takes longer to fetch than a
case to run would begin anew each time.
"""

from __future__ import annotations

import contextlib
import sys

from harness.adb.guard import GuardedProcess, spawn_guarded
from harness.bisect.answers import Place
from harness.bisect.candidates import ANYWHERE, is_here
from harness.bisect.task import Axis, Task
from harness.errors import InfraError
from harness.runtimes.catalog import Catalog


class FetchAhead:
    """One version at a time, in a process of its own, which ends with us.

    What it did not finish is fetched by the run that needs it.
    """

    def __init__(self, catalog: Catalog, task: Task) -> None:
        self._catalog = catalog
        self._task = task
        self._process: GuardedProcess | None = None

    def want(self, places: tuple[Place, ...]) -> None:
        """Begins to fetch the first of these that is not here. Returns at once."""
        if self._process is not None and self._process.running:
            return
        self.stop()
        for at in places:
            for axis, version in self._task.versions(at).items():
                if not is_here(self._catalog, axis, version, self._task.target):
                    self._fetch(axis, version, at)
                    return

    def _fetch(self, axis: Axis, version: str, at: Place) -> None:
        target = ANYWHERE if axis == "compiler" else self._task.target
        command = [sys.executable, "-m", "harness.cli.main", "runtimes", "fetch"]
        command += ["--lab", str(self._task.lab), "--target", target]
        if axis == "ort":
            # an ORT is fetched with a QNN: with the one it will run with, which is wanted as well
            command += ["--ort", version, self._task.given(at)["qnn"]]
        else:
            command.append(version)
        with contextlib.suppress(InfraError):
            self._process = spawn_guarded(command, cwd=self._task.folder)

    def stop(self) -> None:
        """Ends what is under way; safe to call twice."""
        if self._process is not None:
            self._process.stop()
            self._process = None
