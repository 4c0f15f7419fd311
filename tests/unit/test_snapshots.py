"""The files of snapshots: each section belongs to a test that there is."""

from pathlib import Path

import pytest

from tests.snapshots import NAME, owner_of, read_sections

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("file", sorted(TESTS.rglob(NAME)), ids=lambda file: file.parent.name)
def test_each_section_has_its_test(file: Path) -> None:
    sections = {owner_of(heading) for heading in read_sections(file)}
    assert [
        (module, test)
        for module, test in sections
        if f"def {test}(" not in (file.parent / module).read_text()
    ] == []
