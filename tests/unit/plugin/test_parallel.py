"""The end of a run that pytest-xdist distributes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from xdist.dsession import Interrupted

from harness.plugin.parallel import Controller


@pytest.mark.parametrize(
    ("end", "cases", "raised"),
    [
        (Interrupted("stopping after 1 failures"), 3, pytest.Session.Failed),
        (Interrupted("stopping after 1 failures"), 0, Interrupted),
        (Interrupted("<WorkerController gw0> received keyboard-interrupt"), 3, Interrupted),
        (KeyboardInterrupt(), 3, KeyboardInterrupt),
    ],
)
def test_a_run_of_cases_that_maxfail_stops_was_not_interrupted(
    end: BaseException, cases: int, raised: type[BaseException]
) -> None:
    run: Any = SimpleNamespace(records=SimpleNamespace(to_run=cases))
    session: Any = SimpleNamespace(config=None, Failed=pytest.Session.Failed)
    controller = Controller(run)
    loop = controller.pytest_runtestloop(session)
    next(loop)
    with pytest.raises(raised) as caught:
        loop.throw(end)
    controller.pytest_unconfigure()
    assert type(caught.value) is raised
