"""`--plan`: the cases that would run and the files each would push, without touching a device."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import pytest

from harness.ground import ConfigError, counted
from harness.ground.yaml_lines.document import all_of
from harness.run.pytest_plugin.collected import need_of, parameters_of
from harness.run.pytest_plugin.terminal import write_line

if TYPE_CHECKING:
    from harness.run.pytest_plugin.device_run import Run
    from harness.run.workbench import Need, PushedFile
    from harness.run.workbench.materials import Materials


def show_plan(session: pytest.Session, run: Run) -> None:
    """Prints the plan.

    Raises one ConfigError for all cases whose input is wrong, which are shown with the reason, and
    InfraError where a library or context cannot be had.
    """
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    assert reporter is not None
    cases = [(item, need) for item in session.items if (need := need_of(item)) is not None]
    distinct: dict[tuple[str, PushedFile], None] = {}
    wrong: list[ConfigError] = []
    for item, need in cases:
        try:
            made = run.workbench.materials(need)
            files, planned = made.listed(), list(_planned(item, need, made))
        except ConfigError as error:
            write_line(reporter, f"{item.nodeid}  cannot run: {error}")
            wrong.append(error)
            continue
        total = sum(file.size for file in files)
        write_line(reporter, f"{item.nodeid}  ({counted(len(files), 'file')}, {_size(total)})")
        for file in files:
            write_line(reporter, f"    {_size(file.size):>10}  {file.name}  [{file.origin}]")
            distinct[need.placement.device, file] = None
        for line in planned:
            write_line(reporter, f"    {line}")
    pushed = sum(file.size for _, file in distinct)
    write_line(reporter, "")
    write_line(
        reporter,
        f"{counted(len(cases), 'case')}; {counted(len(distinct), 'different file')}, "
        f"{_size(pushed)} if no device has any of them yet; nothing was run",
    )
    if wrong:
        raise all_of(wrong)


def _planned(item: pytest.Item, need: Need, made: Materials) -> Iterable[str]:
    """What the test itself plans to do with its contexts, as its `planned` marker tells."""
    marker = item.get_closest_marker("planned")
    if marker is None:
        return ()
    if refused := [str(one) for one in need.sources if one not in made.contexts]:
        return (f"what it does is not known: no contexts were made of {', '.join(refused)}",)
    function: Callable[..., Iterable[str]] = marker.kwargs["says"]
    return function([made.contexts[source] for source in need.sources], parameters_of(item))


def _size(size: int) -> str:
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} B"
