"""What a tree must be like to be released."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.release import notes, problems

CHANGELOG = """\
# Changelog

## Unreleased

## 0.3.0 - 2027-01-20

### Added

- Much.

## 0.2.0 - 2026-12-01

- Something.
"""
THREE = {"pyproject.toml": "0.3.0", "harness/__init__.py": "0.3.0"}


def test_a_tree_that_is_ready() -> None:
    assert problems(THREE, CHANGELOG, {"v0.2.0"}, []) == []
    assert notes(CHANGELOG, "0.3.0") == "### Added\n\n- Much."
    assert notes(CHANGELOG, "0.2.0") == "- Something."
    assert notes(CHANGELOG, "0.3") == ""


@pytest.mark.parametrize(
    ("versions", "changelog", "tags", "changed", "told"),
    [
        (THREE, CHANGELOG, [], ["a.py", "b.py"], "not committed: a.py, b.py"),
        (THREE | {"pyproject.toml": "0.2.0"}, CHANGELOG, [], [], "called differently: pyproject"),
        (THREE, CHANGELOG, ["v0.3.0"], [], "v0.3.0 is tagged already: raise the version in"),
        (dict.fromkeys(THREE, "0.4.0"), CHANGELOG, [], [], "nothing under '## 0.4.0 - YYYY-MM-DD'"),
        (dict.fromkeys(THREE, "0.3"), CHANGELOG, [], [], "0.3 is not MAJOR.MINOR.PATCH"),
        (THREE, CHANGELOG.replace(" - 2027-01-20", ""), [], [], "nothing under '## 0.3.0"),
        (
            THREE,
            CHANGELOG.replace("Unreleased\n", "Unreleased\n\n- More.\n"),
            [],
            [],
            "still has something under Unreleased",
        ),
    ],
)
def test_what_is_in_the_way_is_told(
    versions: Mapping[str, str],
    changelog: str,
    tags: Sequence[str],
    changed: Sequence[str],
    told: str,
) -> None:
    assert any(told in one for one in problems(versions, changelog, tags, changed))


def test_all_of_it_is_told_at_once() -> None:
    assert len(problems(dict.fromkeys(THREE, "0.4.0"), CHANGELOG, ["v0.4.0"], ["a.py"])) == 3
