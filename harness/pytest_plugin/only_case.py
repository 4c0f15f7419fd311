"""`--only-case`: the one item that is a case, whatever versions its name was seen with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.errors import ConfigError
from harness.pytest_plugin.case_names import rest_meant, split_node_id, without_placement

if TYPE_CHECKING:
    from harness.workbench import Placement

_MOST_LISTED = 30


def only_case(
    wanted: str,
    items: Sequence[pytest.Item],
    placement_of: Callable[[pytest.Item], object],
    here: Path,
) -> list[pytest.Item]:
    """The item that `wanted` means, on the first device and backend that it is there for.

    Its path is pytest's, or as seen from the folder `here`, where pytest was started. Raises
    ConfigError if it means none of the items, or several.
    """
    base, given = split_node_id(wanted)
    by_rest: dict[str, list[pytest.Item]] = {}
    skipped = []
    for item in items:
        own, parameters = split_node_id(item.nodeid)
        if own != base and not _same_test(item, own, base, here):
            continue
        placement = placement_of(item)
        if placement is None:
            skipped += [marker.kwargs.get("reason") for marker in item.iter_markers("skip")]
            continue
        rest = without_placement(parameters or "", str(placement))
        by_rest.setdefault(rest, []).append(item)
    if not by_rest:
        why = f": {skipped[0]}" if skipped and skipped[0] else ""
        raise ConfigError(f"no case of a device test is called {base}{why}", field="--only-case")
    rest = _only(by_rest, base) if given is None else _meant(given, by_rest, base)
    _one_version(by_rest[rest], placement_of)
    return by_rest[rest][:1]


def _same_test(item: pytest.Item, own: str, base: str, here: Path) -> bool:
    file, _, name = base.partition("::")
    return own.partition("::")[2] == name and (here / file).resolve() == item.path.resolve()


def _only(by_rest: dict[str, list[pytest.Item]], base: str) -> str:
    if len(by_rest) == 1:
        return next(iter(by_rest))
    raise ConfigError(
        f"{base} has {len(by_rest)} cases; name one", field="--only-case", choices=_names(by_rest)
    )


def _meant(given: str, by_rest: dict[str, list[pytest.Item]], base: str) -> str:
    rest = rest_meant(given, by_rest)
    if rest is None:
        raise ConfigError(
            f"{base} has no case [{given[:200]}]", field="--only-case", choices=_names(by_rest)
        )
    return rest


def _names(by_rest: dict[str, list[pytest.Item]]) -> list[str]:
    names = [f"[{rest}]" if rest else "without parameters" for rest in by_rest]
    more = len(names) - _MOST_LISTED
    return names if more <= 0 else [*names[:_MOST_LISTED], f"... {more} more"]


def _one_version(
    items: Sequence[pytest.Item], placement_of: Callable[[pytest.Item], object]
) -> None:
    """Several devices are one case with others to fall back on; several versions are not."""
    places: list[Placement] = [placement_of(item) for item in items]  # type: ignore[misc]
    versions = {(place.qnn, place.ort, place.compiler) for place in places}
    if len(versions) > 1:
        shown = [str(place) for place in places[:_MOST_LISTED]]
        raise ConfigError("one version of each is wanted", field="--only-case", choices=shown)
