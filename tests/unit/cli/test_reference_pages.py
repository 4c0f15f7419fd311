"""docs/reference/ is what the code says, and has every command, option, key and field."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from harness.cli.schema import schemas
from harness.core.errors import HarnessError
from harness.plugin.options import OPTIONS
from tests.unit.cli import reference_pages
from tests.unit.cli.reference_pages import COMMAND, FOLDER, every_command, options_of

COMMANDS = list(every_command())
OF_YAML = {
    "devices.schema.json": "devices-yaml.md",
    "known_issues.schema.json": "known-issues-yaml.md",
}


def section(page: str, heading: str) -> str:
    """Return the text of a page below a heading, until the next one of any level."""
    text = (FOLDER / page).read_text("utf-8")
    section = re.search(
        rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL
    )
    assert section, f"{page} has no heading {heading!r}: run `{COMMAND}`"
    return section[1]


def test_the_pages_are_current() -> None:
    outdated = reference_pages.outdated(FOLDER)
    assert not outdated, f"{', '.join(outdated)} in docs/reference: run `{COMMAND}`"


def test_what_is_outdated_is_told(tmp_path: Path) -> None:
    for name, text in reference_pages.pages().items():
        (tmp_path / name).write_text(text, "utf-8")
    assert reference_pages.outdated(tmp_path) == []
    (tmp_path / "pytest.md").write_text("# old\n")
    (tmp_path / "json.md").unlink()
    (tmp_path / "gone.md").touch()
    assert reference_pages.outdated(tmp_path) == ["gone.md", "json.md", "pytest.md"]


@pytest.mark.parametrize(("name", "command"), COMMANDS, ids=[name for name, _ in COMMANDS])
def test_each_option_of_a_command_is_there_and_told_of(name: str, command: click.Command) -> None:
    text = section("commands.md", name)
    for option in options_of(command):
        assert option.help, f"{name} {option.opts[0]} has no help"
        assert all(f"`{name}" in text for name in option.opts), option.opts


def test_all_commands_are_walked_through() -> None:
    names = {name for name, _ in COMMANDS}
    assert {"qnn-harness contexts fit", "qnn-harness bisect log", "qnn-harness run"} < names
    # a group that is not walked through would leave its commands out
    groups = [command for _, command in COMMANDS if isinstance(command, click.Group)]
    assert len(COMMANDS) - 1 == sum(
        len(group.list_commands(click.Context(group))) for group in groups
    )


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_each_option_of_pytest_is_there(option: Any) -> None:
    assert re.search(rf"^\| `{option.name}[` ]", section("pytest.md", "Options"), re.MULTILINE)


def fields() -> Iterator[tuple[str, str, str, Any]]:
    """Page, heading, key and what is said of it, for each field of each document."""
    for file, text in schemas().items():
        schema, name = json.loads(text), file.partition(".")[0]
        page = OF_YAML.get(file, "json.md")
        whole, of = name, name
        if file in OF_YAML:
            whole, of = schema["title"], name.replace("_", "-")
        parts = {
            f"{of}: {part}": definition for part, definition in schema.get("$defs", {}).items()
        }
        for heading, definition in {whole: schema, **parts}.items():
            for key, field in definition.get("properties", {}).items():
                yield page, heading, key, field


def test_each_field_of_each_document_is_there() -> None:
    names = list(fields())
    assert len(names) > 700
    for page, heading, key, _ in names:
        assert f"\n| `{key}` | " in section(page, heading), (page, heading, key)


@pytest.mark.parametrize("page", OF_YAML.values())
def test_each_key_of_a_file_that_people_write_has_a_meaning(page: str) -> None:
    names = [field for field in fields() if field[0] == page]
    assert names
    assert [
        (heading, key) for _, heading, key, field in names if not field.get("description")
    ] == []


def kinds_of(error: type[HarnessError]) -> Iterator[type[HarnessError]]:
    yield error
    for subclass in error.__subclasses__():
        yield from kinds_of(subclass)


def test_each_exit_code_is_there() -> None:
    """Those of errors, of pytest, and what commands say of themselves."""
    listed = set(re.findall(r"^\| (\d+) \|", section("exit-codes.md", "Exit codes"), re.MULTILINE))
    ends = {str(kind.exit_code) for kind in kinds_of(HarnessError)}
    # pytest 9.1 brings one for --max-warnings, which the harness does not use
    ends |= {str(int(code)) for code in pytest.ExitCode if code.name != "MAX_WARNINGS_ERROR"}
    words = section("exit-codes.md", "What they mean for a command")
    ends |= set(re.findall(r"(?<=[ ,;])\d+(?= [a-z])", words))
    assert listed == ends
    assert "130" in ends


def test_each_link_to_a_part_leads_to_one() -> None:
    for path in FOLDER.glob("*.md"):
        text = path.read_text("utf-8")
        anchors = {
            reference_pages._anchor(heading)
            for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        }
        assert set(re.findall(r"\]\(#([^)]*)\)", text)) <= anchors
