"""Validation harness for Qualcomm QNN runtimes and context binaries on devices reached over adb.

Suites import these names and no others; docs/reference/api.md describes each. A name is loaded
when it is used.

PYTEST_DONT_REWRITE: `qnn-harness run` has loaded this module before pytest begins, which would
warn of that.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness import experiments
    from harness.bench.bench import Bench
    from harness.bench.case_session import Observation, TargetFailure
    from harness.core.errors import ConfigError
    from harness.models.builtin_models import Model
    from harness.models.context_file import ContextFile
    from harness.models.session_plan import ContextSource
    from harness.probe import steps
    from harness.probe.plan import Plan, Rounds, Settings
    from harness.results.record import Check, held, undecided

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
    "Bench": "harness.bench.bench",
    "Check": "harness.results.record",
    "ConfigError": "harness.core.errors",
    "ContextFile": "harness.models.context_file",
    "ContextSource": "harness.models.session_plan",
    "Model": "harness.models.builtin_models",
    "Observation": "harness.bench.case_session",
    "Plan": "harness.probe.plan",
    "Rounds": "harness.probe.plan",
    "Settings": "harness.probe.plan",
    "TargetFailure": "harness.bench.case_session",
    "experiments": "harness.experiments",
    "held": "harness.results.record",
    "steps": "harness.probe.steps",
    "undecided": "harness.results.record",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        problem = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(problem, name=name, obj=sys.modules[__name__])
    module = importlib.import_module(_MODULES[name])
    return module if module.__name__.endswith(f".{name}") else getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
