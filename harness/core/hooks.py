"""The manager of the hooks in `hookspecs.py`: pytest's own in a run, else one of the process."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Final

import pluggy

from harness.core import hookspecs
from harness.core.errors import ConfigError

GROUP: Final = "qnn_harness"
"""The group of entry points that name modules with implementations."""

_managers: Final[list[pluggy.PluginManager]] = []


def hooks() -> pluggy.HookRelay:
    """Return the callers of all hooks, with the implementations of the run or the process.

    Raises ConfigError if an installed module cannot be loaded.
    """
    if not _managers:
        use(pluggy.PluginManager("pytest"))
    return _managers[-1].hook


def use(manager: pluggy.PluginManager) -> None:
    """Add the specifications and what is installed, and call the hooks of `manager` from now on.

    Raises ConfigError like `hooks`.
    """
    manager.add_hookspecs(hookspecs)
    for entry in entry_points(group=GROUP):
        if manager.get_plugin(entry.name) is None and not manager.is_blocked(entry.name):
            try:
                manager.register(entry.load(), entry.name)
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
                raise ConfigError(f"plug-in {entry.name} ({entry.value}): {problem}") from error
    _managers.append(manager)


def leave(manager: pluggy.PluginManager) -> None:
    """Call the hooks of the manager before `manager` again, at the end of a run inside another."""
    if manager in _managers:
        _managers.remove(manager)
