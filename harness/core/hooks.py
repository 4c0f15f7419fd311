"""The plug-ins that implement the hooks of `hookspecs.py`: those of a pytest run, or installed.

Pytest's own manager calls no hook whose name does not begin with `pytest_`. So these have a manager
of their own, which takes up the plug-ins of pytest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Final

import pluggy

from harness.core import hookspecs
from harness.core.errors import ConfigError, raised_text

GROUP: Final = "qnn_harness"
"""The group of entry points that name modules with implementations."""

BUILT_IN: Final = ("harness.engines", "harness.lab", "harness.labgrid", "harness.runtimes")
"""The modules with the harness's own implementations; they are above this one."""


class _Hooks(pluggy.PluginManager):
    """The hooks of a pytest run, or of a process, and the plug-ins in `source`."""

    def __init__(self, source: pluggy.PluginManager) -> None:
        super().__init__("pytest")
        self.add_hookspecs(hookspecs)
        self.source = source
        for module in BUILT_IN:
            self.register(import_module(module), module)

    def parse_hookimpl_opts(self, plugin: object, name: str) -> pluggy.HookimplOpts | None:
        # other attributes may be properties, which must not be read
        return super().parse_hookimpl_opts(plugin, name) if name.startswith("qnn_") else None

    def take_up(self) -> pluggy.HookRelay:
        """Add the plug-ins that are new in `source`, such as a conftest.py, and return the hooks.

        Raises ConfigError for an implementation that does not fit its specification.
        """
        for name, plugin in self.source.list_name_plugin():
            if plugin is not None and self.get_plugin(name) is None:
                try:
                    self.register(plugin, name)
                    self.check_pending()
                except pluggy.PluginValidationError as error:
                    problem = " ".join(str(error).split())
                    raise ConfigError(f"plug-in {name}: {problem}") from error
        return self.hook


_stack: Final[list[_Hooks]] = []


def current() -> _Hooks:
    """Return the manager of the hooks that are called now."""
    if not _stack:
        use(pluggy.PluginManager("pytest"))
    return _stack[-1]


def hooks() -> pluggy.HookRelay:
    """Return the callers of all hooks, with the implementations of the run or the process.

    Raises ConfigError if an installed module cannot be loaded, or does not fit.
    """
    return current().take_up()


def calls(name: str, **arguments: object) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield each plug-in that implements a hook, and the call that returns its result.

    Raises ConfigError like `hooks`.
    """
    implementations = getattr(hooks(), name).get_hookimpls()
    plugins = [implementation.plugin for implementation in implementations]
    for implementation in implementations:
        others = [plugin for plugin in plugins if plugin is not implementation.plugin]
        alone = current().subset_hook_caller(name, others)
        yield implementation.plugin_name, partial(_only_result, alone, arguments)


def _only_result(caller: pluggy.HookCaller, arguments: Mapping[str, object]) -> Any:
    return next(iter(caller(**arguments)), None)


def results(name: str, **arguments: object) -> Iterator[tuple[str, Any]]:
    """Yield each plug-in that implements a hook, and its result.

    Raises ConfigError like `hooks`, and for a plug-in that raises.
    """
    for plugin, call in calls(name, **arguments):
        try:
            yield plugin, call()
        except Exception as error:
            raise ConfigError(raised_text(f"plug-in {plugin}: {name}", error)) from error


def add(plugin: object, name: str) -> None:
    """Add a part of the harness's own, unless it is there or blocked (`-p no:NAME`)."""
    manager = current()
    if manager.get_plugin(name) is None and not manager.source.is_blocked(name):
        manager.register(plugin, name)


def use(source: pluggy.PluginManager) -> None:
    """Load what is installed into `source`, and call the hooks of its plug-ins from now on.

    Raises ConfigError like `hooks`.
    """
    for entry in entry_points(group=GROUP):
        if source.get_plugin(entry.name) is None and not source.is_blocked(entry.name):
            try:
                source.register(entry.load(), entry.name)
            except Exception as error:
                where = f"plug-in {entry.name} ({entry.value})"
                raise ConfigError(raised_text(where, error)) from error
    manager = _Hooks(source)
    manager.take_up()
    _stack.append(manager)


def leave(source: pluggy.PluginManager) -> None:
    """Call the hooks that were called before `use(source)` again, at the end of a nested run."""
    _stack[:] = [hooks for hooks in _stack if hooks.source is not source]
