"""Names of cases: the one that `--only-case` means, whatever versions its name was seen with."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harness.core.errors import ConfigError
from harness.core.outgoing_text import counted
from harness.plugin.collected import parameters_of, placement_of
from harness.results.case_names import NO_PLACEMENT, named, placement_in, split_node_id

if TYPE_CHECKING:
    import pytest

_MOST_LISTED: Final = 30


def without_placement(parameters: str, placement: str) -> str:
    """The parameters of a case without the text of its own placement, wherever that stands."""
    around = f"-{parameters}-"
    return around.replace(f"-{placement}-", "-", 1)[1:-1] if parameters != placement else ""


def own_test(item: pytest.Item) -> str:
    """The node id of a case without what the harness put in, which others share."""
    base, parameters = split_node_id(item.nodeid)
    placed = str(placement_of(item) or NO_PLACEMENT)
    return named(base, without_placement(parameters or "", placed))


def rest_meant(given: str, rests: Collection[str]) -> str | None:
    """Which of the `rests` of a test's cases the parameters `given` mean; None if none.

    They may hold a placement, with whatever versions, or not. Where several fit, the longest is
    meant: a shorter one would leave a part unexplained.
    """
    if given in rests:
        return given
    fitting = [
        rest
        for rest in rests
        if (
            _is_placement(given.removesuffix(f"-{rest}") if rest else given)
            and (not rest or given.endswith(f"-{rest}"))
        )
    ]
    return max(fitting, key=len, default=None)


def only_case(wanted: str, items: Sequence[pytest.Item], here: Path) -> list[pytest.Item]:
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
    if given is not None:
        meant, problem = rest_meant(given, by_rest), f"{base} has no case [{given[:200]}]"
    else:
        meant = next(iter(by_rest)) if len(by_rest) == 1 else None
        problem = f"{base} has {counted(len(by_rest), 'case')}; name one"
    if meant is None:
        raise ConfigError(problem, field="--only-case", choices=_names(by_rest))
    _one_version(by_rest[meant])
    return by_rest[meant][:1]


def refuse_a_compiler(item: pytest.Item, compilers: Sequence[str]) -> None:
    """Raises ConfigError where a compiler is asked for and the case takes files only."""
    from harness.plugin.axes import takes_compiled

    if compilers and not takes_compiled(parameters_of(item).values()):
        raise ConfigError(
            f"{item.nodeid} takes context binaries as they lie there: no compiler makes them, and "
            "there is none to choose",
            field="--compiler",
        )


def without_repeats(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The items. Those that only take files are there once, not once for each compiler."""
    from harness.plugin.axes import takes_compiled

    seen: set[tuple[object, ...]] = set()
    left = []
    for item in items:
        placement = placement_of(item)
        values = parameters_of(item).values()
        if placement and placement.compiler and not takes_compiled(values):
            key = (own_test(item), replace(placement, compiler=None))
            if key in seen:
                continue
            seen.add(key)
        left.append(item)
    return left


def _is_placement(text: str) -> bool:
    found = placement_in(text)
    return found is not None and not found[1]


def _same_test(item: pytest.Item, own: str, base: str, here: Path) -> bool:
    file, _, name = base.partition("::")
    return own.partition("::")[2] == name and (here / file).resolve() == item.path.resolve()


def _names(by_rest: dict[str, list[pytest.Item]]) -> list[str]:
    names = [f"[{rest}]" if rest else "without parameters" for rest in by_rest]
    more = len(names) - _MOST_LISTED
    return names if more <= 0 else [*names[:_MOST_LISTED], f"... {more} more"]


def _one_version(items: Sequence[pytest.Item]) -> None:
    """Raises ConfigError for several versions; several devices may stand in for each other."""
    places = [place for item in items if (place := placement_of(item)) is not None]
    versions = {(place.qnn, place.ort, place.compiler) for place in places}
    if len(versions) > 1:
        shown = [str(place) for place in places[:_MOST_LISTED]]
        raise ConfigError("one version of each is wanted", field="--only-case", choices=shown)
