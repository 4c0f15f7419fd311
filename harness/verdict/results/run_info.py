"""run.json: what is said of a run as a whole, as a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticKnownError

from harness.ground.errors import ConfigError
from harness.ground.files.bounded_json import parse_model, problem_in
from harness.ground.files.names_inside import read_inside

INFO: Final = "run.json"
INFO_SCHEMA: Final = 1
_MAX_BYTES: Final = 16 << 20


def _is_number(schema: object) -> object:
    if type(schema) is not int:  # true and 1.0 are 1 for a Literal
        raise PydanticKnownError("literal_error", {"expected": str(INFO_SCHEMA)})
    return schema


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

    schema_number: Annotated[Literal[1], BeforeValidator(_is_number), Field(alias="schema")]
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
