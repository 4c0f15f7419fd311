"""What a controller and its workers tell each other beside what pytest-xdist carries."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harness.ground.files.bounded_json import parse_json
from harness.ground.host.platform import children
from harness.run.pytest_plugin.attempts import MovedCase

if TYPE_CHECKING:
    import pytest

    from harness.run.pytest_plugin.scheduler import CaseNeeds

_WORKER: Final = "worker-"
_CASES: Final = "cases-"


class Messages:
    """Files in a folder that a controller and its workers share.

    While a worker runs, pytest-xdist brings node ids and reports from it, and numbers of tests to
    it. A node id does not tell for sure whether it is that of a case: any test may be called so. A
    hash stands for it, since it can be longer than the name of a file.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._begun: pytest.Item | None = None

    def tell_cases(
        self,
        worker: str,
        cases: Mapping[str, CaseNeeds],
        code: Mapping[str, str],
    ) -> None:
        """Which of the tests that a worker collected are cases, and of which code.

        Told before pytest-xdist says which tests there are.
        """
        (self.folder / f"{_CASES}{worker}").write_text(json.dumps([cases, code]))

    def cases(self, worker: str) -> tuple[dict[str, CaseNeeds], dict[str, str]]:
        """What a worker told by `tell_cases`; empty if it has no case."""
        try:
            cases, code = parse_json((self.folder / f"{_CASES}{worker}").read_bytes())
        except FileNotFoundError:
            return {}, {}
        return cases, code

    def is_pause(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Whether a worker is to begin a case, or has done so and waits for the next one.

        pytest-xdist begins a test when it knows the next; so each case is sent twice (`ByDevice`).
        """
        if self._begun is item:
            self._begun = None
            return True
        self._begun = item if nextitem is item else None
        return False

    def put(self, node_id: str, move: MovedCase) -> None:
        """Writes down where a case goes on, before the worker is told to run it."""
        self._file(node_id).write_text(json.dumps(asdict(move)))

    def find(self, node_id: str) -> MovedCase | None:
        """What was written down for a case."""
        try:
            return MovedCase(**parse_json(self._file(node_id).read_bytes()))
        except FileNotFoundError:
            return None

    def ends_in_order(self) -> None:
        """Says that this worker takes a SIGTERM for Ctrl-C."""
        (self.folder / f"{_WORKER}{os.getpid()}").touch()

    def end_workers(self) -> None:
        """Ends those of our workers that said so."""
        ours = set(map(str, children()))
        for file in self.folder.glob(f"{_WORKER}*"):
            if (pid := file.name.removeprefix(_WORKER)) in ours:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGTERM)

    def _file(self, node_id: str) -> Path:
        return self.folder / hashlib.sha256(node_id.encode("utf-8", "surrogatepass")).hexdigest()
