"""The base class of engines, and all engines of the process or of the run."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pluggy

from harness.core import hooks
from harness.core.context_options import OptionValue
from harness.core.errors import ConfigError
from harness.core.matrix_axes import BACKENDS, Backend

if TYPE_CHECKING:  # for annotations only: subclasses stand above these packages
    from harness.bench.bench import Bench
    from harness.bench.case_session import Observation
    from harness.bench.prepared_devices import PreparedPlacement
    from harness.containers.manifest import RunPlan
    from harness.models.artefact_sources import ModelOptions, WholeFile
    from harness.models.context_file import Files
    from harness.probe.plan import Plan, Rounds
    from harness.runtimes.preflight import PreflightInput
    from harness.runtimes.preflight_findings import Finding
    from harness.runtimes.runtime import Driver

DEFAULT_ENGINE: Final = "qnn"
"""The engine of a test whose marker names none."""


@dataclass(frozen=True)
class EngineProgram:
    """A program that an engine brings to a device, with its libraries: `files` by their names.

    `name` and `version` are for people, `program` is the file that is run.
    """

    name: str
    version: str
    program: str
    files: Mapping[str, Path]


CASE_TIMEOUT_S: Final = 300.0
"""The limit for a process of a case by default."""


@dataclass(frozen=True)
class FileRun:
    """A file to run with an engine, and the options for it; paths are absolute.

    `graph` names the one to execute, None for the usual one. With `fallback`, nodes that the NPU
    refuses may run on the CPU. `context_options` are those of each context that is loaded.
    """

    path: Path
    inputs: Files = None
    expected: Files = None
    tolerance: float = 0.0
    rounds: int | Rounds = 1
    graph: str | None = None
    fallback: bool = False
    timeout_s: float = CASE_TIMEOUT_S
    context_options: Mapping[str, OptionValue] = field(default_factory=dict)


class Engine:
    """Base class of engines: an engine executes the contexts or models of a case.

    Its module is imported at each start of pytest, so import large modules inside of methods.
    """

    name: str
    """The name in markers (`device(engine=NAME)`), options (`--engine NAME`) and records."""
    title: str
    """The name in messages and reports."""
    kinds: tuple[str, ...] = ()
    """The files that it runs as they are: kinds as `inspect` names them, or suffixes ("acme")."""
    default_for: tuple[str, ...] = ()
    """Those of `kinds` that it runs if no engine is named and the file holds no contexts."""
    backends: tuple[Backend, ...] = BACKENDS
    """The backends on which it runs."""
    method: str | None = None
    """The method of `bench` that runs such a file in a test, if there is one."""
    option: str | None = None
    """The option that chooses its version or names a user's own build, without dashes."""
    takes_contexts: bool = False
    """It loads contexts one by one: compiled ones, or those of files."""
    takes_models: bool = False
    """It builds graphs on the device itself."""
    takes_context_options: bool = False
    """It passes the options of contexts on when it loads them."""
    has_compilers: bool = False
    """A QNN version compiles for it, so that its cases have the axis `compiler`."""

    @property
    def test(self) -> str:
        """The test that runs a file with it, in the names of cases."""
        return f"test_{self.name}"

    @property
    def suite(self) -> str:
        """The suite of the cases of files, in records."""
        return f"run_{self.name}"

    def driver(self, file_names: Collection[str]) -> Driver:
        """Return which of these files of a QNN runtime it needs, by default those of the probe."""
        return "qnn"

    def fitting_qnn(
        self, build: Path | None, made_by: Callable[[], Sequence[str]]
    ) -> tuple[str, str] | None:
        """Return the range of QNN versions that it runs with, and the reason; None for all.

        The newest of them is taken unless `--qnn` names others. `build` is a user's own build of
        the engine; `made_by` returns the versions that made the contexts of a test's files.
        """
        return None

    def findings(self, subject: PreflightInput, build: Path | None) -> Iterable[Finding]:
        """Return findings of preflight about the engine with these libraries."""
        return ()

    def program(self, prepared: PreparedPlacement) -> EngineProgram | None:
        """Return the program and files that a case needs on its device, built on this computer.

        Raises HarnessError.
        """
        return None

    def cases(self, path: Path, options: ModelOptions) -> list[WholeFile]:
        """Return the cases of a file. Raises ConfigError for a file or options that do not fit."""
        return [options.whole_file(path)]

    def run(self, bench: Bench, file: FileRun) -> Observation | None:
        """Run a case of a file on a device.

        Without an observation the case passes unless this raises TargetFailure.
        """
        raise NotImplementedError

    def manual(self, model: str, plan: RunPlan) -> str:
        """Return how to run a bundled file without the harness, for the bundle's README.txt."""
        return ""

    def plan_to_profile(self, bench: Bench, workload: WholeFile, observation: Observation) -> Plan:
        """Return the plan that `--profile` runs again: by default the observed one."""
        return observation.run.plan


def require_no_graph(engine: Engine, path: Path, options: ModelOptions) -> None:
    """Raise ConfigError if a graph was chosen for an engine that executes whole models."""
    if options.graph is not None:
        problem = f"{engine.title} executes the whole model; leave the graph out"
        raise ConfigError(problem, file=path, field="graph")


_NAME: Final = re.compile("[a-z][a-z0-9_]{0,39}")


class _Engines(Mapping[str, Engine]):
    """The engines of all plug-ins by name, the built-in ones first.

    Each use raises ConfigError for a plug-in's mistake.
    """

    def __init__(self) -> None:
        self._manager: object = None
        self._implementations: list[pluggy.HookImpl] = []
        self._engines: dict[str, Engine] = {}

    def __getitem__(self, name: str) -> Engine:
        if self._manager is hooks.current() and name in self._engines:
            return self._engines[name]  # at once: this is done for each case
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def _read(self) -> dict[str, Engine]:
        implementations = hooks.hooks().qnn_engines.get_hookimpls()
        if self._manager is hooks.current() and implementations == self._implementations:
            return self._engines
        engines: dict[str, Engine] = {}
        for plugin, result in hooks.results("qnn_engines"):
            for engine in result if isinstance(result, Iterable) else [result]:
                if not isinstance(engine, Engine):
                    problem = f"qnn_engines returned {engine!r:.80}, which is not an Engine"
                    raise ConfigError(f"plug-in {plugin}: {problem}")
                name = str(getattr(engine, "name", None))
                if not _NAME.fullmatch(name) or not hasattr(engine, "title"):
                    problem = f"engine {name}: an engine needs a title, and a name like ort2"
                    raise ConfigError(f"plug-in {plugin}: {problem}")
                if engine.name in engines:
                    raise ConfigError(f"plug-in {plugin}: an engine {engine.name!r} already exists")
                engines[engine.name] = engine
        self._manager, self._implementations = hooks.current(), implementations
        self._engines = engines
        return engines


ENGINES: Final[Mapping[str, Engine]] = _Engines()
"""All engines by name, the default first; not to be read while modules are imported."""


def find_engine(name: str) -> Engine:
    """Return the engine that `--engine` names. Raises ConfigError for an unknown one."""
    if name not in ENGINES:
        raise ConfigError(f"unknown engine {name!r:.80}", field="--engine", choices=tuple(ENGINES))
    return ENGINES[name]
