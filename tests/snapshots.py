"""Texts that people read, as tests got them last: a file of them beside the tests of a package.

A test compares a text with the fixture, and the next one of the same test with its next section:

    assert error_text == snapshot

`pytest PATHS --snapshot-update` writes what differs. Its diff is reviewed like code.
"""

import contextlib
import difflib
from collections.abc import Iterable, Iterator
from pathlib import Path

import filelock
import pytest

NAME = "snapshots.txt"
HEADING = "== "
INDENT = "    "
TESTED = pytest.StashKey[dict[Path, dict[str, str]]]()
"""What the tests of this process got, by the file of snapshots and the section's heading."""


class Snapshot:
    """The sections of one test, compared in their order."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, file: Path, test: str, tested: dict[str, str], *, updates: bool) -> None:
        self._recorded = read_sections(file)
        self._test = test
        self._tested = tested
        self._updates = updates
        self._replaced: dict[str, str] = {}
        self._compared = 0
        self.expected = ""

    def hide(self, value: object, name: str) -> None:
        """Put a name for what differs in each run (a folder, a port) into the texts that follow."""
        self._replaced[str(value)] = name

    def __eq__(self, value: object) -> bool:
        """Compare a text, or lines, and go on to the next section."""
        self._compared += 1
        text = self._text(value)
        heading = self._test if self._compared == 1 else f"{self._test} {self._compared}"
        self._tested[heading] = text
        self.expected = text if self._updates else self._recorded.get(heading, "")
        return self.expected == text

    def __repr__(self) -> str:
        return "the snapshot"

    @contextlib.contextmanager
    def raises(self, kind: type[BaseException]) -> Iterator[pytest.ExceptionInfo[BaseException]]:
        """Expect an exception, with its class and text as in the next section."""
        with pytest.raises(kind) as caught:
            yield caught
        assert f"{caught.type.__name__}: {caught.value}" == self

    def difference(self, value: object) -> list[str]:
        """Lines for pytest: how a text differs from the section that it was compared with."""
        lines = difflib.unified_diff(
            self.expected.splitlines(), self._text(value).splitlines(), "recorded", "now", n=1
        )
        return [*lines, "", "--snapshot-update writes the text that there is now"]

    def _text(self, value: object) -> str:
        lines = [value] if isinstance(value, str) or not isinstance(value, Iterable) else value
        text = "\n".join(map(str, lines))
        for hidden, name in self._replaced.items():
            text = text.replace(hidden, name)
        return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def read_sections(file: Path) -> dict[str, str]:
    """The texts of a file of snapshots by their headings."""
    sections: dict[str, list[str]] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        if line.startswith(HEADING):
            lines = sections.setdefault(line.removeprefix(HEADING), [])
        else:
            lines.append(line.removeprefix(INDENT))
    return {heading: "\n".join(lines) for heading, lines in sections.items()}


def owner_of(heading: str) -> tuple[str, str]:
    """The module's name and the function of a section: `test_x.py`, `test_it`."""
    module, _, test = heading.partition("::")
    return module, test.partition("[")[0].partition(" ")[0]


def update(file: Path, tested: dict[str, str]) -> None:
    """Write what the tests got, without the sections that they and tests that are gone left."""
    ran = {owner_of(heading) for heading in tested}
    sources = {path.name: path.read_text() for path in file.parent.glob("test_*.py")}
    with filelock.FileLock(file.with_suffix(".lock")):
        sections = {
            heading: text
            for heading, text in read_sections(file).items()
            if owner_of(heading) not in ran
        } | tested
        file.write_text(
            "".join(
                f"{HEADING}{heading}\n"
                + "".join(f"{INDENT}{line}".rstrip() + "\n" for line in text.splitlines())
                for heading, text in sorted(sections.items())
                if f"def {owner_of(heading)[1]}(" in sources.get(owner_of(heading)[0], "")
            )
        )
    file.with_suffix(".lock").unlink(missing_ok=True)
