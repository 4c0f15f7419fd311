"""Validation harness for Qualcomm QNN runtimes and context binaries on devices reached over adb.

What a suite imports stands here and nowhere else; docs/suites.md tells of each. A name is loaded
when it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness import experiments
    from harness.bench import Bench, Observation, TargetFailure
    from harness.contexts.context_file import ContextFile
    from harness.contexts.models import Model
    from harness.contexts.source import Context, ContextSource
    from harness.errors import ConfigError
    from harness.probe import steps
    from harness.probe.plan import Plan, Settings
    from harness.results.checks import Check, held, undecided

__version__ = "0.1.0"

__all__ = [
    "Bench",
    "Check",
    "ConfigError",
    "Context",
    "ContextFile",
    "ContextSource",
    "Model",
    "Observation",
    "Plan",
    "Settings",
    "TargetFailure",
    "experiments",
    "held",
    "steps",
    "undecided",
]

_MODULES = {
    "Bench": "harness.bench",
    "Check": "harness.results.checks",
    "ConfigError": "harness.errors",
    "Context": "harness.contexts.source",
    "ContextFile": "harness.contexts.context_file",
    "ContextSource": "harness.contexts.source",
    "Model": "harness.contexts.models",
    "Observation": "harness.bench",
    "Plan": "harness.probe.plan",
    "Settings": "harness.probe.plan",
    "TargetFailure": "harness.bench",
    "experiments": "harness.experiments",
    "held": "harness.results.checks",
    "steps": "harness.probe.steps",
    "undecided": "harness.results.checks",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(_MODULES[name])
    return module if module.__name__.endswith(f".{name}") else getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
