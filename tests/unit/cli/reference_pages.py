"""Makes docs/reference/ of the code: commands and options, YAML keys, JSON fields, exit codes.

`python -m tests.unit.cli.reference_pages` writes it; a test compares.
"""

import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
import pytest

from harness.cli.main import commands
from harness.cli.run import run
from harness.cli.schema import schemas
from harness.core.errors import ConfigError, HarnessError, InfraError
from harness.plugin import plugin
from harness.plugin.collection import MARKERS
from harness.plugin.options import OPTIONS, Option

FOLDER: Final = Path(__file__).parents[3] / "docs" / "reference"
COMMAND: Final = "python -m tests.unit.cli.reference_pages"
_MADE: Final = f"<!-- Made of the code: `{COMMAND}` -->"
_WORD: Final[Mapping[str, str]] = {"integer": "N", "float": "X", "path": "PATH", "file": "FILE"}
_KINDS: Final[Mapping[str, str]] = {"string": "text", "boolean": "true or false"}
_SAYS_HOW_IT_ENDS: Final = re.compile(r"(?:Exit codes?:?|Ends with) [^.]*\.(?!\d)")
_CODES: Final = (
    (0, "all is well: what was asked for was done, and all that was selected has a verdict"),
    (1, "the answer is negative: a case failed, a check is red, something new is wrong"),
    (ConfigError.exit_code, "the input is wrong; the message says what, where, and what is valid"),
    (
        InfraError.exit_code,
        "the lab failed, or the harness itself: nothing is said of the device or the model",
    ),
    (
        int(pytest.ExitCode.USAGE_ERROR),
        "of pytest alone: it did not take its options, or found no such file",
    ),
    (int(pytest.ExitCode.NO_TESTS_COLLECTED), "of pytest alone: no test was selected"),
    (130, "it was interrupted (Ctrl-C); pytest itself ends with 2 then"),
)
_COMPLETION: Final = """\
## Completion in the shell

The Tab key completes commands, options and their choices. Put the line of your shell into its file:

| shell | file | line |
|---|---|---|
| bash | `~/.bashrc` | `eval "$(_QNN_HARNESS_COMPLETE=bash_source qnn-harness)"` |
| zsh | `~/.zshrc`, after `compinit` | `eval "$(_QNN_HARNESS_COMPLETE=zsh_source qnn-harness)"` |
| fish | `~/.config/fish/config.fish` | `_QNN_HARNESS_COMPLETE=fish_source qnn-harness \\| source` |
"""
_OF_YAML: Final = ("devices.schema.json", "known_issues.schema.json")


def pages() -> dict[str, str]:
    """Name of each page, and its text."""
    documents = {name: json.loads(text) for name, text in schemas().items()}
    return {
        "commands.md": "\n".join(_commands()),
        "pytest.md": "\n".join(_pytest()),
        "devices-yaml.md": "\n".join(
            _yaml(
                "devices.yaml", "describes a lab", "howto/lab.md", documents["devices.schema.json"]
            )
        ),
        "known-issues-yaml.md": "\n".join(
            _yaml(
                "known_issues.yaml",
                "writes down failures that are expected",
                "results.md#known-issues",
                documents["known_issues.schema.json"],
            )
        ),
        "json.md": "\n".join(
            _json({name: document for name, document in documents.items() if name not in _OF_YAML})
        ),
        "exit-codes.md": "\n".join(_exit_codes()),
    }


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


def _commands() -> Iterator[str]:
    yield "# Commands and their options\n"
    yield f"{_MADE}\n"
    yield (
        "For whoever looks up what a command of `qnn-harness` takes. `qnn-harness COMMAND --help` "
        "says the same, and every command takes `--help`. [Exit codes](exit-codes.md) and "
        "[what `--json` prints](json.md) have pages of their own.\n"
    )
    yield _COMPLETION
    for name, command in every_command():
        yield f"## {name}\n"
        if arguments := _arguments(command):
            yield f"Usage: `{name}{' [OPTIONS]' if options_of(command) else ''} {arguments}`\n"
        yield from _paragraphs(command.help or "")
        if options := options_of(command):
            yield "| option | what it says |"
            yield "|---|---|"
            for option in options:
                yield f"| {_spelled(option)} | {_told(option)} |"
            yield ""


def _arguments(command: click.Command) -> str:
    arguments = [parameter for parameter in command.params if isinstance(parameter, click.Argument)]
    words = []
    for argument in arguments:
        name = (
            argument.metavar
            or f"{str(argument.name).upper()}{'...' if argument.nargs == -1 else ''}"
        )
        words.append(name if argument.required or name.startswith("[") else f"[{name}]")
    if isinstance(command, click.Group):
        words.append("[COMMAND ...]" if command.invoke_without_command else "COMMAND ...")
    return " ".join(words)


def _spelled(option: click.Option) -> str:
    value = "" if option.is_flag else f" {_value(option)}"
    return ", ".join(
        f"`{name}{value}`".replace("|", "\\|") for name in (*option.opts, *option.secondary_opts)
    )


def _value(option: click.Option) -> str:
    if option.metavar:
        return option.metavar
    if isinstance(option.type, click.Choice):
        return "|".join(map(str, option.type.choices))
    name = option.type.name.removesuffix(" range")
    return _WORD.get(name, name.upper())


def _told(option: click.Option) -> str:
    text = _cell(option.help or "")
    default = option.default if option.show_default and option.default is not None else None
    if isinstance(option.type, click.IntRange | click.FloatRange):
        low, high = option.type.min, option.type.max
        text += f" At least {low:g}" if low is not None else ""
        text += f"{', at' if low is not None else ' At'} most {high:g}." if high else "."
    text += f" Default: `{default}`." if default is not None else ""
    text += " May be given several times." if option.multiple else ""
    return f"{text} Must be given." if option.required else text


def _pytest() -> Iterator[str]:
    yield "# What pytest takes\n"
    yield f"{_MADE}\n"
    yield (
        "For whoever writes tests or runs them with pytest: the options, markers and fixtures of "
        "the plug-in. [Writing a suite](../howto/write-tests.md) shows them at work.\n"
    )
    yield "## Options\n"
    yield (
        "`pytest --help` lists them, too. What may be repeated takes commas as well. The short "
        "form of an option is there unless another plug-in or a conftest.py has one of that name, "
        "which then keeps it: pytest-playwright has a `--device`, pytest-profiling a `--profile`, "
        "pytest-retry a `--retries`. The long form always works. In the right column: what "
        "`qnn-harness run` calls it.\n"
    )
    yield "| option | what it says | `run` |"
    yield "|---|---|---|"
    for option in OPTIONS:
        text = _cell(_sentence(option.arguments["help"]))
        yield f"| {_given(option)} | {text} | {_in_run(option)} |"
    yield "\n## Markers\n"
    yield "| marker | what it says |"
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
    named = {option.name: option.opts[0] for option in options_of(run)}
    return f"`{named[option.parameter]}`" if option.parameter in named else ""


def _yaml(file: str, does: str, page: str, schema: dict[str, Any]) -> Iterator[str]:
    name = file.partition(".")[0].replace("_", "-")
    yield f"# Keys of {file}\n"
    yield f"{_MADE}\n"
    yield (
        f"For whoever {does}. [{page.partition('#')[0]}](../{page}) says what that is good for; "
        f"editors can check the file by [its schema](../schema/{file.partition('.')[0]}"
        ".schema.json). A key without a default must be there.\n"
    )
    yield from _document(name, file, schema, yaml=True)


def _json(documents: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    yield "# JSON that the harness writes\n"
    yield f"{_MADE}\n"
    yield (
        "For whoever reads with a program what the harness writes: every field of every document. "
        "Each says in `schema` of which version it is; "
        "[versions.md](../versions.md) says how long one stays. The schemas themselves are in "
        "[docs/schema](../schema/results.schema.json). Units are in the names.\n"
    )
    yield "| document | schema |"
    yield "|---|---|"
    for file, schema in documents.items():
        name = file.partition(".")[0]
        yield f"| [{schema['title']}](#{_anchor(name)}) | [{file}](../schema/{file}) |"
    yield ""
    for file, schema in documents.items():
        yield from _document(file.partition(".")[0], schema["title"], schema)


def _document(
    name: str, title: str, schema: dict[str, Any], *, yaml: bool = False
) -> Iterator[str]:
    yield f"## {title if yaml else name}\n"
    yield from () if yaml else _paragraphs(f"{title}.")
    parts = schema.get("$defs", {})
    if "properties" in schema:
        yield from _paragraphs(schema.get("description", ""))
        yield from _fields(name, schema, parts, yaml)
    else:
        either = [_type(choice, name, parts) for choice in schema.get("oneOf") or schema["anyOf"]]
        yield f"One of {', '.join(either)}.\n"
    for part, definition in parts.items():
        if _is_object(definition):
            yield f"### {name}: {part}\n"
            yield from _paragraphs(definition.get("description", ""))
            yield from _fields(name, definition, parts, yaml)


def _fields(
    name: str, definition: dict[str, Any], parts: Mapping[str, Any], yaml: bool
) -> Iterator[str]:
    properties = definition["properties"]
    is_described = yaml or any("description" in field for field in properties.values())
    yield f"| {'key' if yaml else 'field'} | what it holds |{' meaning |' if is_described else ''}"
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


def _exit_codes() -> Iterator[str]:
    yield "# Exit codes\n"
    yield f"{_MADE}\n"
    yield (
        "For whoever calls the harness from a script or from CI. `pytest` with device tests and "
        "every command of `qnn-harness` end alike.\n"
    )
    yield "| code | meaning |"
    yield "|---|---|"
    for code, meaning in _CODES:
        yield f"| {code} | {meaning} |"
    yield ""
    assert HarnessError.exit_code == InfraError.exit_code
    yield (
        "Of several the first of 1, 2, 3 counts, and all of it is said. "
        "[Coverage](../results.md#coverage) says which case counts as what.\n"
    )
    yield "## What they mean for a command\n"
    yield "| command | in its own words |"
    yield "|---|---|"
    for name, command in every_command():
        text = " ".join((command.help or "").replace("\b", " ").split())
        if message := _SAYS_HOW_IT_ENDS.findall(text):
            yield f"| `{name}` | {_cell(' '.join(message))} |"
    yield ""


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
