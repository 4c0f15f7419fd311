"""run.json: what is said of a run as a whole, as a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from harness.ground.errors import ConfigError
from harness.ground.files.bounded_json import parse_model, problem_in
from harness.ground.files.names_inside import read_inside
from harness.ground.files.schema_field import Schema1

INFO: Final = "run.json"
INFO_SCHEMA: Final = 1
_MAX_BYTES: Final = 16 << 20


class _Told(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


class _Named(_Told):
    """A device or a computer, as far as anybody asks for it."""

    name: str = ""
    host: str | None = None


class _Lab(_Told):
    devices: list[_Named] = []


class RunInfo(_Told):
    """A run.json, also that of a night or a bisection; whatever else it says is kept as it is."""

    schema_number: Schema1
    run: str | None = None
    series: str | None = None
    number: int | None = None
    started: str | None = None
    finished: str | None = None
    exit_code: int | None = None
    problem: str | None = None
    other_failures: bool = False
    command: list[str] = []
    selection: list[str] = []
    selected: Annotated[int, Field(ge=0, lt=1 << 53)] | None = None
    devices: list[str] = []
    lab: _Lab = _Lab()
    host: _Named = _Named()
    code: dict[str, str] = {}
    known_issues: dict[str, str | None] = {}
    resumed: list[dict[str, Any]] = []
    merged: list[dict[str, Any]] = []


def info_in(folder: Path) -> dict[str, Any]:
    """Return what the run.json of a folder says; empty if there is none.

    Raises ConfigError for one that is damaged or of another schema.
    """
    try:
        info = parse_model(RunInfo, read_inside(folder, INFO, _MAX_BYTES))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=folder / INFO) from error
    except ValueError as error:
        problem = f"{problem_in(error)}; without this file the run is told by its journal alone"
        raise ConfigError(problem, file=folder / INFO) from error
    return info.model_dump(by_alias=True, exclude_unset=True)
