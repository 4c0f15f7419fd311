"""How a worker tells a case from the wait for the next one."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from harness.run.pytest_plugin.messages import Messages


def test_the_second_of_two_turns_is_a_pause_and_a_test_sent_once_has_none() -> None:
    messages = Messages(Path())
    case, other, plain = object(), object(), object()
    sent: list[Any] = [case, case, case, case, plain, other, other, None]
    found = [messages.is_pause(item, following) for item, following in pairwise(sent)]
    assert found == [False, True, False, True, False, False, True]
