"""docs/reference/ is current, and options, keys and exit codes have their words."""

import json
import re
from collections.abc import Iterator

import click
import pytest

from harness.cli.schema import schemas
from harness.core.errors import HarnessError
from tests.unit.cli.reference_pages import COMMAND, FOLDER, every_command, options_of, pages


def test_the_pages_are_current() -> None:
    current = {name: (FOLDER / name).read_text("utf-8") for name in pages()}
    assert current == pages(), f"run `{COMMAND}`"


@pytest.mark.parametrize(
    "command", [pytest.param(command, id=name) for name, command in every_command()]
)
def test_each_option_of_a_command_has_help(command: click.Command) -> None:
    options = options_of(command)
    assert [option.opts for option in options if not option.help] == []
    resumed = {option.metavar for option in options if "--resume" in option.opts} - {None}
    assert resumed <= {"RUN", "[RUN]"}


@pytest.mark.parametrize("file", ["devices.schema.json", "known_issues.schema.json"])
def test_each_key_of_a_file_that_people_write_has_a_meaning(file: str) -> None:
    schema = json.loads(schemas()[file])
    assert [
        (part, key)
        for part, definition in {"": schema, **schema["$defs"]}.items()
        for key, field in definition.get("properties", {}).items()
        if not field.get("description")
    ] == []


def kinds_of(error: type[HarnessError]) -> Iterator[type[HarnessError]]:
    yield error
    for subclass in error.__subclasses__():
        yield from kinds_of(subclass)


def test_each_exit_code_is_there() -> None:
    text = (FOLDER / "cli.md").read_text("utf-8")
    listed = set(re.findall(r"^\| (\d+) \|", text, re.MULTILINE))
    assert listed >= {str(kind.exit_code) for kind in kinds_of(HarnessError)} | {"0", "130"}
