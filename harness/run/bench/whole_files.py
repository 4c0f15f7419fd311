"""What of a user's file each engine runs that loads files as they are: one table of them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harness.contexts import Given, WholeFile
from harness.ground import ConfigError
from harness.ground.facts.engines import EXECUTORCH, LITERT, ORT, Engine
from harness.run.bench.executorch import methods_to_run, open_program
from harness.run.bench.litert import open_model
from harness.run.bench.session import open_session


def _programs(path: Path, given: Given) -> list[WholeFile]:
    given.require_use_of_tolerance(path)
    methods = methods_to_run(path) if given.graph is None else (given.graph,)
    programs = [open_program(path, method) for method in methods]
    return [
        WholeFile.of(
            path,
            one.readable(),
            given if given.graph else replace(given, graph=one.method),
            [path],
            part=one.method if len(programs) > 1 else None,
        )
        for one in programs
    ]


def _session(path: Path, given: Given) -> list[WholeFile]:
    _require_no_graph(path, given, ORT)
    model = open_session(path, given.tolerance)
    if model.model is None or given.inputs is not None:
        given.require_use_of_tolerance(path)
    files = [path, *model.beside.values()] if model.model is None else ()
    return [WholeFile.of(path, model.sources, given, files)]


def _model(path: Path, given: Given) -> list[WholeFile]:
    _require_no_graph(path, given, LITERT)
    if given.expected is not None:
        problem = f"{LITERT.title} says on this computer's CPU what is expected: none is given"
        raise ConfigError(problem, file=path, field="expected")
    open_model(path)
    return [WholeFile.of(path, (), given, ())]


def _require_no_graph(path: Path, given: Given, engine: Engine) -> None:
    if given.graph is not None:
        problem = f"{engine.title} executes a whole model: there is no graph to choose"
        raise ConfigError(problem, file=path, field="graph")


WHOLE_FILES: Final[Mapping[str, Callable[[Path, Given], list[WholeFile]]]] = MappingProxyType(
    {EXECUTORCH.name: _programs, ORT.name: _session, LITERT.name: _model}
)
"""By engine what makes the cases of a file. It raises ConfigError for one that it does not take."""
