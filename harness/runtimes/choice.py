"""Which runtimes the devices of a run get, by target, and why some get none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.errors import ConfigError

Resolve = Callable[[str, str], Sequence[str]]
"""(spec, target) -> names of runtimes, as `Catalog.resolve`; raises ConfigError."""


@dataclass(frozen=True)
class Choice:
    """The runtimes by target, and for targets where a spec meant nothing, why."""

    runtimes: Mapping[str, tuple[str, ...]]
    reasons: Mapping[str, tuple[str, ...]]


def choose_runtimes(resolve: Resolve, specs: Sequence[str], targets: Iterable[str]) -> Choice:
    """What `specs` mean for each target, each name once (pure but for `resolve`).

    What means something for one target only is left out for the others, with the reason. Raises
    the ConfigError of a spec that means nothing for any of them.
    """
    wanted = list(dict.fromkeys(targets))
    runtimes: dict[str, dict[str, None]] = {target: {} for target in wanted}
    reasons: dict[str, list[str]] = {target: [] for target in wanted}
    for spec in specs:
        errors: list[ConfigError] = []
        for target in wanted:
            try:
                runtimes[target].update(dict.fromkeys(resolve(spec, target)))
            except ConfigError as error:
                errors.append(error)
                reasons[target].append(f"for {target}: {error}")
        if errors and len(errors) == len(wanted):
            raise errors[0]
    return Choice(
        {target: tuple(found) for target, found in runtimes.items()},
        {target: tuple(found) for target, found in reasons.items()},
    )
