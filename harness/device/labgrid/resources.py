"""What exporters show, found by the patterns that places have for it (pure).

A place names exporter, group and class of its resources, each perhaps with a wildcard. In a lab of
40,000 places nobody can hold each of them against all resources.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Generic, TypeVar

Key = tuple[str, str, str, str]
"""Exporter, group, class and name."""

_Value = TypeVar("_Value")
_WILD: Final = frozenset("*?[")


class Resources(Generic[_Value]):
    """Resources by exporter and group."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, dict[tuple[str, str], _Value]]] = {}

    def put(self, key: Key, value: _Value) -> _Value | None:
        """Takes a resource that is new or has changed; returns what it was before."""
        exporter, group, kind, name = key
        found = self._of.setdefault(exporter, {}).setdefault(group, {})
        before = found.get((kind, name))
        found[kind, name] = value
        return before

    def drop(self, exporter: str, group: str, name: str) -> list[_Value]:
        """Drops the resources of a name, of whatever class; returns them."""
        found = self._of.get(exporter, {}).get(group, {})
        return [found.pop(key) for key in [key for key in found if key[1] == name]]

    def near(self, patterns: Iterable[tuple[str, str]]) -> list[tuple[Key, _Value]]:
        """All that patterns of (exporter, group) can mean, in the order of their keys."""
        found: dict[Key, _Value] = {}
        for exporter, group in patterns:
            for one in _keys(self._of, exporter):
                for other in _keys(self._of[one], group):
                    for (kind, name), value in self._of[one][other].items():
                        found[one, other, kind, name] = value
        return sorted(found.items(), key=lambda item: item[0])


def _keys(held: dict[str, _Value], pattern: str) -> Iterator[str]:
    """The keys that a pattern may match: one if it has no wildcard, else all."""
    if _WILD.isdisjoint(pattern):
        if pattern in held:
            yield pattern
    else:
        yield from held
