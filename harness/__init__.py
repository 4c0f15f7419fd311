"""Validation harness for Qualcomm QNN runtimes and context binaries on devices reached over adb.

What a suite imports stands here and nowhere else; docs/suites.md tells of each. A name is loaded
when it is used.

PYTEST_DONT_REWRITE: `qnn-harness run` has loaded this module before pytest begins, which would
warn of that.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.contexts.compiler.models import Model
    from harness.contexts.context.source import ContextSource
    from harness.contexts.sources.context_file import ContextFile
    from harness.ground.errors import ConfigError
    from harness.probe import steps
    from harness.probe.plan import Plan, Rounds, Settings
    from harness.run import experiments
    from harness.run.bench.bench import Bench
    from harness.run.bench.case_session import Observation, TargetFailure
    from harness.verdict.results.record import Check, held, undecided

__version__ = "0.1.0"

__all__ = [
    "Bench",
    "Check",
    "ConfigError",
    "ContextFile",
    "ContextSource",
    "Model",
    "Observation",
    "Plan",
    "Rounds",
    "Settings",
    "TargetFailure",
    "experiments",
    "held",
    "steps",
    "undecided",
]

_MODULES = {
    "Bench": "harness.run.bench.bench",
    "Check": "harness.verdict.results.record",
    "ConfigError": "harness.ground.errors",
    "ContextFile": "harness.contexts.sources.context_file",
    "ContextSource": "harness.contexts.context.source",
    "Model": "harness.contexts.compiler.models",
    "Observation": "harness.run.bench.case_session",
    "Plan": "harness.probe.plan",
    "Rounds": "harness.probe.plan",
    "Settings": "harness.probe.plan",
    "TargetFailure": "harness.run.bench.case_session",
    "experiments": "harness.run.experiments",
    "held": "harness.verdict.results.record",
    "steps": "harness.probe.steps",
    "undecided": "harness.verdict.results.record",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        problem = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(problem, name=name, obj=sys.modules[__name__])
    module = importlib.import_module(_MODULES[name])
    return module if module.__name__.endswith(f".{name}") else getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
