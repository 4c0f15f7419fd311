"""How many files the newest engine, axis, transport and so on stand in: they only become fewer."""

from __future__ import annotations

import pytest

from tests.touched_files import KINDS, code_of, files_of, lists_axes, touched


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    return touched(files_of(None))


@pytest.mark.parametrize("kind", KINDS)
def test_so_many_files_at_most_name_the_newest(found: dict[str, list[str]], kind: str) -> None:
    assert 1 <= len(found[kind]) <= KINDS[kind].most, found[kind]


def test_words_are_no_code() -> None:
    text = '"""litert"""\n# litert\ndef f() -> None:\n    """litert"""\n'
    assert "litert" not in code_of("a.py", text)
    assert "litert" in code_of("a.py", "A = 'litert'\n")


@pytest.mark.parametrize(
    ("code", "lists"),
    [
        ("A = ('qnn', 'ort')", True),
        ("A = {'qnn': 1, 'compiler': 2}", True),
        ("A = ['qnn', 'other']", False),
        ("A = 'qnn'; B = 'ort'", False),
    ],
)
def test_axes_side_by_side(code: str, lists: bool) -> None:
    assert lists_axes("a.py", code) is lists
    assert not lists_axes("a.js", code)
