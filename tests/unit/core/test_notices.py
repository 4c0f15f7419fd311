"""How far something is, is told to whoever follows it, and to nobody else."""

from __future__ import annotations

from collections.abc import Mapping

from harness.core.notices import at_work, far, followed, followed_by


def test_who_follows_hears_it_and_only_as_long() -> None:
    heard: list[tuple[str, Mapping[str, object]]] = []
    before = followed()
    at_work("phone", case="a")
    with followed_by(lambda device, facts: heard.append((device, facts))):
        assert followed()
        at_work("phone", **far("pushing", 1, 2, "MB"))
        at_work("phone", **far(None))
    at_work("phone", case="b")
    assert followed() == before
    told = {"doing": "pushing", "done": 1, "total": 2, "unit": "MB"}
    assert heard == [("phone", told), ("phone", dict.fromkeys(told))]
