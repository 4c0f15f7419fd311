"""The list of slow tests that `make test` ends with."""

from __future__ import annotations

from pathlib import Path

from tests import slowest


def test_the_slowest_are_told_beside_the_runs_before(tmp_path: Path) -> None:
    file = tmp_path / "new" / "slowest.json"
    assert slowest.read(file) == {}
    first = {f"test_{number}": float(number) for number in range(20)}
    assert [line.split()[-1] for line in slowest.told(first, {})] == [
        f"test_{number}" for number in range(19, 9, -1)
    ]
    slowest.write(file, slowest.later(first, {}))
    before = slowest.read(file)
    assert "test_0" not in before, "it is quicker than what is kept"
    second = {"test_7": 8.04, "test_new": 3.0}
    assert [line.split() for line in slowest.told(second, before)] == [
        ["8.0", "s", "(before:", "7.0)", "test_7"],
        ["3.0", "s", "(new)", "test_new"],
    ]
    known = slowest.later(second, before)
    assert (known["test_7"], known["test_19"], known["test_new"]) == ([7.0, 8.0], [19.0], [3.0])
    for number in range(9):
        known = slowest.later({"test_7": 2.0 + number}, known)
    assert known["test_7"] == [7.0, 8.0, 9.0, 10.0]
    assert slowest.told({"test_7": 1.0}, known)[0].split("  ")[-2:] == [
        "(before: 10.0, 9.0, 8.0, 7.0)",
        "test_7",
    ]
    assert "test_7" not in slowest.later({"test_7": 0.5}, known), "it is slow no more"


def test_what_cannot_be_read_is_nothing(tmp_path: Path) -> None:
    file = tmp_path / "slowest.json"
    for text in ("", "[]", '{"a": 1}', '{"a": ["b"]}', '{"a": [null]}'):
        file.write_text(text)
        assert slowest.read(file) == {}, text
