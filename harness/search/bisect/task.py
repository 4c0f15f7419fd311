"""The case of a bisection, and pytest's arguments for a run of it with some versions (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, StrictInt

from harness.ground.facts.axes import AXES, AxisName
from harness.run.pytest_plugin.own_contexts import is_of_a_file, nothing_beside
from harness.search.bisect.answers import Point
from harness.search.bisect.match import parse_match
from harness.search.bisect.search import Spec
from harness.verdict.failure.error import Part
from harness.verdict.results.case_names import split_node_id

_LEASE_WAIT_S: Final = 600


class Task(Part):
    """One case, to be run with versions that a search chooses.

    `case` is a node id whose versions do not count. `devices` are the device that it runs on and
    those that may stand in for it. `held` has the versions of axes that are not searched and not at
    their usual version, `paths` the path of each version that is named by a path. `match` is what
    counts as bad (None: any failure). `folder` is where pytest is started, `pytest_arguments` goes
    to it as it is.
    """

    search: Spec
    case: str
    held: Mapping[AxisName, str] = {}
    paths: Mapping[AxisName, Mapping[str, str]] = {}
    devices: Annotated[tuple[str, ...], Field(min_length=1)]
    target: str
    backend: str
    lab: Path
    folder: Path
    match: str | None = None
    run_timeout_s: Annotated[StrictInt, Field(ge=1)] = 1800
    pytest_arguments: tuple[str, ...] = ()

    @property
    def axes(self) -> tuple[AxisName, ...]:
        return tuple(self.search.versions)

    def versions(self, at: Point) -> dict[AxisName, str]:
        """Every version that is fixed in a run at a point."""
        return {**self.held, **dict(zip(self.axes, at, strict=True))}

    def given(self, at: Point) -> dict[AxisName, str]:
        """The versions of a run as pytest must be told them."""
        return {
            axis: self.paths.get(axis, {}).get(version, version)
            for axis, version in self.versions(at).items()
        }

    def arguments(self, at: Point, reports: Path, devices: Sequence[str]) -> list[str]:
        """pytest's arguments for a run at a point, on the first of `devices` that can be used."""
        arguments = case_arguments(self.case, self.lab, reports, devices, self.backend)
        arguments += [f"{AXES[axis].option}={version}" for axis, version in self.given(at).items()]
        profiles = self.match is not None and parse_match(self.match).profiles
        arguments += ["--qnn-profile=ops"] if profiles else []
        # those of a test in Python belong to it
        arguments += nothing_beside(self.folder) if is_of_a_file(self.case) else []
        return [*arguments, *self.pytest_arguments, split_node_id(self.case)[0]]


def case_arguments(
    case: str, lab: Path, reports: Path, devices: Sequence[str], backend: str
) -> list[str]:
    """pytest's arguments for one case alone, on the first of `devices` that can be used."""
    # Paths are given with "=": pytest takes a word of its own for the path of a test.
    arguments = ["-m", "device", "-n0", "-p", "no:cacheprovider", f"--qnn-only-case={case}"]
    arguments += [f"--qnn-lab={lab}", f"--qnn-reports={reports}", f"--qnn-backend={backend}"]
    # so that the case is called after what they all are, and not after one of them
    arguments += ["--qnn-each-soc"] if len(devices) > 1 else []
    # other people's runs may come between; a search that waits is better than one that stops
    return [*arguments, f"--qnn-device={','.join(devices)}", f"--qnn-lease-timeout={_LEASE_WAIT_S}"]
