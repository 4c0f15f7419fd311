"""Generate what docs/reference/ says of pytest's options, YAML keys and records.

`python -m tests.unit.cli.reference_pages` writes it behind the marker of each page; a test
compares. The commands of `qnn-harness` are added to the site by mkdocs-click.
"""

import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from harness.cli.main import commands
from harness.cli.run import run
from harness.cli.schema import schemas
from harness.plugin import plugin
from harness.plugin.collection import MARKERS
from harness.plugin.options import INI_KEYS, OPTIONS, Option

FOLDER: Final = Path(__file__).parents[3] / "docs" / "reference"
COMMAND: Final = "python -m tests.unit.cli.reference_pages"
_GENERATED: Final = f"<!-- Generated from here on: `{COMMAND}` -->\n\n"
_KINDS: Final[Mapping[str, str]] = {"string": "text", "boolean": "true or false"}


def pages() -> dict[str, str]:
    """Return the text of each page by its name; what precedes the marker is written by hand."""
    texts = {}
    for name, generate in {"cli.md": _pytest, "files.md": _files}.items():
        head = (FOLDER / name).read_text("utf-8").partition(_GENERATED)[0]
        texts[name] = f"{head}{_GENERATED}{chr(10).join(generate()).rstrip()}\n"
    return texts


def every_command() -> Iterator[tuple[str, click.Command]]:
    """Each command with its whole name, groups before what is in them."""
    waiting = [click.Context(commands, info_name="qnn-harness")]
    while waiting:
        parent = waiting.pop(0)
        yield parent.command_path, parent.command
        if isinstance(parent.command, click.Group):
            names = parent.command.list_commands(parent)
            named = [(name, parent.command.get_command(parent, name)) for name in names]
            waiting[:0] = [
                click.Context(command, info_name=name, parent=parent)
                for name, command in named
                if command
            ]


def options_of(command: click.Command) -> list[click.Option]:
    """Those of a command that are shown; each has --help, which is none of them."""
    return [
        parameter
        for parameter in command.params
        if isinstance(parameter, click.Option) and not parameter.hidden
    ]


def _pytest() -> Iterator[str]:
    yield "## Options of pytest\n"
    yield "| option | meaning | `run` |"
    yield "|---|---|---|"
    for option in OPTIONS:
        text = _cell(_sentence(option.arguments["help"]))
        yield f"| {_given(option)} | {text} | {_in_run(option)} |"
    yield "\n## Settings of pytest\n"
    yield (
        "Keys of `[tool.pytest.ini_options]` in pyproject.toml or of pytest.ini. `-o KEY=VALUE` "
        "sets one for a run, also behind `--` of `qnn-harness run`. Paths are relative to the root "
        "folder.\n"
    )
    yield "| key | meaning | `run` |"
    yield "|---|---|---|"
    for key, option in INI_KEYS.items():
        text = _cell(_sentence(option.arguments["help"]))
        yield f"| `{key}` | {text} | {_in_run(option)} |"
    yield "\n## Markers\n"
    yield "| marker | meaning |"
    yield "|---|---|"
    for line in MARKERS:
        name, _, text = line.partition(": ")
        yield f"| `{name}` | {_cell(_sentence(text))} |"
    yield "\n## Fixtures\n"
    for fixture in (plugin.bench,):
        function = inspect.unwrap(fixture)
        yield f"`{function.__name__}`: {' '.join((inspect.getdoc(function) or '').split())}\n"


def _given(option: Option) -> str:
    value = option.arguments.get("metavar") or "|".join(option.arguments.get("choices", ()))
    return f"`{option.name}{f' {value}' if value else ''}`, `{option.short}`".replace("|", "\\|")


def _in_run(option: Option) -> str:
    named = {option.name: max(option.opts, key=len) for option in options_of(run)}
    return f"`{named[option.parameter]}`" if option.parameter in named else ""


def _files() -> Iterator[str]:
    documents = {name: json.loads(text) for name, text in schemas().items()}
    for name in ("devices", "known_issues", "results"):
        yield from _document(name, documents.pop(f"{name}.schema.json"))
    yield "## JSON documents\n"
    yield "| document | schema |"
    yield "|---|---|"
    for file, schema in documents.items():
        yield f"| {schema['title']} | [{file}](../schema/{file}) |"


def _document(name: str, schema: dict[str, Any]) -> Iterator[str]:
    is_yaml = name != "results"
    yield f"## {name}.yaml\n" if is_yaml else "## results.jsonl\n"
    parts = schema.get("$defs", {})
    if "properties" in schema:
        yield from _paragraphs(schema.get("description", ""))
        yield from _fields(name, schema, parts, is_yaml)
    else:
        either = [_type(choice, name, parts) for choice in schema.get("oneOf") or schema["anyOf"]]
        yield f"A line is one of {', '.join(either)}.\n"
    for part, definition in parts.items():
        if _is_object(definition):
            yield f"### {name}: {part}\n"
            yield from _paragraphs(definition.get("description", ""))
            yield from _fields(name, definition, parts, is_yaml)


def _fields(
    name: str, definition: dict[str, Any], parts: Mapping[str, Any], yaml: bool
) -> Iterator[str]:
    properties = definition["properties"]
    is_described = yaml or any("description" in field for field in properties.values())
    yield f"| {'key' if yaml else 'field'} | type |{' meaning |' if is_described else ''}"
    yield "|---|---|---|" if is_described else "|---|---|"
    for key, field in properties.items():
        kind_text = _type(field, name, parts)
        if yaml and key not in definition.get("required", ()):
            default = field.get("default")
            plain = default is not None and not isinstance(default, dict)
            kind_text += f"; default `{json.dumps(default)}`" if plain else "; may be left out"
        meaning = f" {_cell(field.get('description', ''))} |" if is_described else ""
        yield f"| `{key}` | {kind_text} |{meaning}"
    yield ""


def _type(field: Mapping[str, Any], name: str, parts: Mapping[str, Any]) -> str:
    """Return the type of a field in words; parts that are objects as links."""
    if "$ref" in field:
        part = field["$ref"].rpartition("/")[2]
        if part == "JsonValue":
            return "any JSON"
        definition = parts.get(part, {})
        return (
            f"[{part}](#{_anchor(f'{name}: {part}')})"
            if _is_object(definition)
            else _type(definition, name, parts)
        )
    if "const" in field:
        return f"`{json.dumps(field['const'])}`"
    if "enum" in field:
        return ", ".join(f"`{json.dumps(choice)}`" for choice in field["enum"])
    for many in ("anyOf", "oneOf"):
        if many in field:
            either = [_type(choice, name, parts) for choice in field[many]]
            last = [text for text in either if text == "null"]
            return " or ".join(dict.fromkeys([*(text for text in either if text != "null"), *last]))
    if field.get("type") == "array":
        rows = field.get("prefixItems")
        if rows:
            return f"a list of {', '.join(_type(row, name, parts) for row in rows)}"
        return f"a list of: {_type(field.get('items', {}), name, parts)}"
    if field.get("type") == "object":
        values = field.get("additionalProperties")
        of = _type(values, name, parts) if isinstance(values, dict) else "any JSON"
        return f"an object; each value: {of}"
    kinds = field.get("type", "any JSON")
    several = kinds if isinstance(kinds, list) else [kinds]
    if len(several) > 3:
        return "a plain value"
    text = " or ".join(_KINDS.get(kind, kind) for kind in several)
    if field.get("format") == "date-time":
        return "a time (RFC 3339)"
    return text + _range(field)


def _range(field: Mapping[str, Any]) -> str:
    """The bounds of a number, where they tell more than how many bits it has."""
    low, high = field.get("minimum", field.get("exclusiveMinimum")), field.get("maximum")
    if (low is None and high is None) or (low is not None and abs(low) > 1e9):
        return ""
    if high is None or high >= 1e7:
        word = "above" if "exclusiveMinimum" in field else "at least"
        return "" if low is None or (word == "at least" and low == 0) else f", {word} {low:g}"
    return f", {low:g} to {high:g}" if low is not None else f", at most {high:g}"


def _is_object(definition: Mapping[str, Any]) -> bool:
    return "properties" in definition


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in inspect.cleandoc(text.replace("\b", "")).split("\n\n"):
        if paragraph.strip():
            yield f"{_plain(' '.join(paragraph.split()))}\n"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."


def _cell(text: str) -> str:
    return _plain(" ".join(text.split())).replace("|", "\\|")


def _plain(text: str) -> str:
    """Text in which Markdown changes nothing but what stands in backticks."""
    parts: Sequence[str] = text.split("`")
    return "`".join(
        part if number % 2 else re.sub(r"([*_<>\[\]])", r"\\\1", part)
        for number, part in enumerate(parts)
    )


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-")


def main() -> None:
    """Write the pages."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text.rstrip("\n") + "\n", "utf-8")


if __name__ == "__main__":
    main()
