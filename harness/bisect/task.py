"""What every run of a bisection is made of: the case, and what its versions are held at (pure)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt

from harness.bisect.answers import Place
from harness.pytest_plugin.case_names import split_node_id

Axis = Literal["qnn", "ort", "compiler"]
AXES: Final[tuple[Axis, ...]] = ("qnn", "ort", "compiler")
_LEASE_WAIT_S: Final = 600


class Task(BaseModel):
    """One case, to be run with versions that a search chooses.

    `case` is a node id whose versions do not count. `devices` are the one it runs on and those
    that may stand in for it. `held` has the axes that are not searched and whose version is not
    simply the usual one, `paths` the place of each version that is named by one. `folder` is where
    pytest is started, `pytest_arguments` goes to it as it is. `good` is the place whose
    measurements `--match` compares with.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    case: str
    axes: Annotated[tuple[Axis, ...], Field(min_length=1, max_length=2)]
    held: Mapping[Axis, str] = {}
    paths: Mapping[Axis, Mapping[str, str]] = {}
    devices: Annotated[tuple[str, ...], Field(min_length=1)]
    target: str
    backend: str
    lab: Path
    folder: Path
    known_issues: Path | None = None
    match: str | None = None
    good: Place | None = None
    run_timeout_s: Annotated[StrictInt, Field(ge=1)] = 1800
    pytest_arguments: tuple[str, ...] = ()

    def versions(self, at: Place) -> dict[Axis, str]:
        """Every version that is fixed in a run at a place."""
        return {**self.held, **dict(zip(self.axes, at, strict=True))}

    def only_held(self) -> tuple[Axis, ...]:
        """The axes whose version is the same in all runs."""
        return tuple(axis for axis in self.held if axis not in self.axes)

    def given(self, at: Place) -> dict[Axis, str]:
        """The versions of a run as pytest must be told them."""
        return {
            axis: self.paths.get(axis, {}).get(version, version)
            for axis, version in self.versions(at).items()
        }

    def arguments(
        self, at: Place, reports: Path, devices: Sequence[str], ahead: Sequence[Place] = ()
    ) -> list[str]:
        """pytest's arguments for a run at a place, on the first of `devices` that can be used.

        What runs `ahead` of it will need is made ready meanwhile.
        """
        # Paths are given with "=": pytest takes a word of its own for the path of a test.
        arguments = ["-m", "device", "-n0", "-p", "no:cacheprovider", f"--only-case={self.case}"]
        arguments += [f"--lab={self.lab}", f"--reports={reports}", f"--backend={self.backend}"]
        arguments += [f"--device={','.join(devices)}"]
        arguments += [f"--{axis}={version}" for axis, version in self.given(at).items()]
        for place in ahead:
            named = (f"{axis}={version}" for axis, version in self.given(place).items())
            arguments.append(f"--ahead={shlex.join(named)}")
        # other people's runs may come between; a search that waits is better than one that stops
        arguments.append(f"--lease-timeout={_LEASE_WAIT_S}")
        if self.known_issues is not None:
            arguments.append(f"--known-issues={self.known_issues}")
        return [*arguments, *self.pytest_arguments, split_node_id(self.case)[0]]
