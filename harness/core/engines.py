"""All engines of the process or of the run, from the hook `qnn_engines`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import pluggy

from harness.core import hooks
from harness.core.engine import Engine
from harness.core.errors import ConfigError

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
                    problem = f"qnn_engines returned {engine!r:.80}, which is no Engine"
                    raise ConfigError(f"plug-in {plugin}: {problem}")
                name = str(getattr(engine, "name", None))
                if not _NAME.fullmatch(name) or not hasattr(engine, "title"):
                    problem = f"an engine needs a title and a name like ort2, and is called {name}"
                    raise ConfigError(f"plug-in {plugin}: {problem}")
                if engine.name in engines:
                    raise ConfigError(f"plug-in {plugin}: the engine {engine.name!r} exists")
                engines[engine.name] = engine
        self._manager, self._implementations = hooks.current(), implementations
        self._engines = engines
        return engines


ENGINES: Final[Mapping[str, Engine]] = _Engines()
"""All engines by name, the default first; not to be read while modules are imported."""


def find_engine(name: str) -> Engine:
    """Return the engine that `--engine` names. Raises ConfigError for an unknown one."""
    if name not in ENGINES:
        raise ConfigError(f"no engine {name!r:.80}", field="--engine", choices=tuple(ENGINES))
    return ENGINES[name]
