"""The case that `qnn_only_case` names, whatever versions the name has, and no case twice."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harness.core.errors import ConfigError
from harness.core.matrix_axes import SEARCHED
from harness.core.outgoing_text import counted
from harness.plugin.collection import own_test, parameters_of, placement_of
from harness.results.case_names import matching_rest, split_node_id, without_placement

if TYPE_CHECKING:
    import pytest

_MOST_LISTED: Final = 30


def only_case(name: str, items: Sequence[pytest.Item], here: Path) -> list[pytest.Item]:
    """Return the item called `name`, on the first device and backend that has it.

    Its path is relative to pytest's root or to the folder `here`, where pytest was started. Raises
    ConfigError if no item or several items match.
    """
    base, wanted = split_node_id(name)
    file, function = here / base.partition("::")[0], base.partition("::")[2]
    by_rest: dict[str, list[pytest.Item]] = {}
    skipped = []
    for item in items:
        own_base, parameters = split_node_id(item.nodeid)
        if own_base != base and (
            own_base.partition("::")[2] != function or file.resolve() != item.path.resolve()
        ):
            continue
        placement = placement_of(item)
        if placement is None:
            skipped += [marker.kwargs.get("reason") for marker in item.iter_markers("skip")]
            continue
        by_rest.setdefault(without_placement(parameters or "", str(placement)), []).append(item)
    if not by_rest:
        reason = f": {skipped[0]}" if skipped and skipped[0] else ""
        raise ConfigError(f"there is no device test {base}{reason}", field="qnn_only_case")
    if wanted is not None:
        meant, problem = matching_rest(wanted, by_rest), f"{base} has no case [{wanted[:200]}]"
    else:
        meant = next(iter(by_rest)) if len(by_rest) == 1 else None
        problem = f"{base} has {counted(len(by_rest), 'case')}; name one"
    if meant is None:
        raise ConfigError(problem, field="qnn_only_case", choices=_names(by_rest))
    places = [place for item in by_rest[meant] if (place := placement_of(item)) is not None]
    if len({tuple(getattr(place, name) for name in SEARCHED) for place in places}) > 1:
        shown = [str(place) for place in places[:_MOST_LISTED]]
        problem = "the case has several versions; choose one of each"
        raise ConfigError(problem, field="qnn_only_case", choices=shown)
    return by_rest[meant][:1]


def refuse_a_compiler(item: pytest.Item, compilers: Sequence[str]) -> None:
    """Raise ConfigError if a compiler is selected and the case uses files only."""
    from harness.plugin.axes import takes_compiled

    if compilers and not takes_compiled(parameters_of(item).values()):
        raise ConfigError(
            f"{item.nodeid} loads context binaries from files, so there is no compiler to choose",
            field="--compiler",
        )


def without_repeats(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the items; those that only use files once, not once for each compiler."""
    from harness.plugin.axes import takes_compiled

    known: set[tuple[object, ...]] = set()
    unique = []
    for item in items:
        placement = placement_of(item)
        values = parameters_of(item).values()
        if placement and placement.compiler and not takes_compiled(values):
            key = (own_test(item), placement.model_copy(update={"compiler": None}))
            if key in known:
                continue
            known.add(key)
        unique.append(item)
    return unique


def _names(by_rest: dict[str, list[pytest.Item]]) -> list[str]:
    names = [f"[{rest}]" if rest else "without parameters" for rest in by_rest]
    more = len(names) - _MOST_LISTED
    return names if more <= 0 else [*names[:_MOST_LISTED], f"... {more} more"]
