"""YAML files written by people: read with line numbers, so that every mistake names its place.

The file is turned into plain values without running any of YAML's constructors, and checked
against a pydantic model; whatever is wrong comes out as one ConfigError with a line per mistake.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from harness.errors import ConfigError

Location = tuple[str | int, ...]

_MAX_BYTES = 1 << 20
_MAX_DEPTH = 32
_MAX_VALUES = 100_000
_SCALAR_TYPES = (bool, int, float, str, datetime.date, type(None))


@dataclass(frozen=True)
class Document:
    """A file's content: plain values, and the line (1-based) where each of them begins.

    `value` is None, a bool, int, float, str or date, or a list or str-keyed dict of these.
    `lines` and `written` are keyed by the path to a value, e.g. ("devices", 0, "name");
    `written` is a scalar as it stands in the file.
    """

    file: str
    value: object
    lines: Mapping[Location, int]
    written: Mapping[Location, str]

    def line(self, location: Location) -> int:
        """The line of a value, or of the nearest one around it that the file has."""
        for end in range(len(location), -1, -1):
            if location[:end] in self.lines:
                return self.lines[location[:end]]
        return 1

    def mistake(
        self, location: Location, problem: str, choices: Sequence[object] | None = None
    ) -> ConfigError:
        """A ConfigError that points at this place."""
        return ConfigError(
            problem,
            file=self.file,
            line=self.line(location),
            field=field_name(location) or None,
            choices=choices,
        )


def field_name(location: Location) -> str:
    """The dotted path of a location: ("devices", 0, "name") -> devices[0].name."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def all_of(mistakes: Sequence[ConfigError]) -> ConfigError:
    """One ConfigError that says everything these say, a line each, in the order of the file."""
    ordered = sorted(mistakes, key=lambda mistake: mistake.line or 0)
    if len(ordered) == 1:
        return ordered[0]
    return ConfigError("\n".join(dict.fromkeys(str(mistake) for mistake in ordered)))


def read_document(path: Path) -> Document:
    """Reads a YAML file of at most 1 MiB.

    Raises ConfigError if it cannot be read, is no YAML, or holds a repeated key, a merge key,
    tags of its own, or more than 100,000 values (aliases count each time they are used).
    """
    try:
        if not path.is_file():
            raise ConfigError("is not a file" if path.exists() else "no such file", file=path)
        with path.open("rb") as stream:
            content = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=path) from error
    if len(content) > _MAX_BYTES:
        raise ConfigError(f"is larger than {_MAX_BYTES} bytes", file=path)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError("is not UTF-8 text", file=path, line=line) from error
    return parse_document(text, str(path))


def parse_document(text: str, file: str) -> Document:
    """Like `read_document` for text already read; `file` is the name used in errors."""
    reader = _Reader(file)
    try:
        _bound_depth(text, file)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError("holds a character that YAML does not allow", file=file, line=line) from (
            error
        )
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ConfigError(
            _syntax_problem(error), file=file, line=mark.line + 1 if mark else None
        ) from error
    value = reader.value(root, ()) if root is not None else None
    if reader.mistakes:
        raise all_of(reader.mistakes)
    return Document(file, value, reader.lines, reader.written)


class _Reader:
    """Turns YAML nodes into values; collects mistakes instead of stopping at the first."""

    def __init__(self, file: str) -> None:
        self.mistakes: list[ConfigError] = []
        self.lines: dict[Location, int] = {}
        self.written: dict[Location, str] = {}
        self._file = file
        self._open: list[yaml.Node] = []
        self._scalars = yaml.SafeLoader("")

    def value(self, node: yaml.Node, location: Location) -> object:
        line = node.start_mark.line + 1
        self.lines.setdefault(location, line)
        if len(self.lines) > _MAX_VALUES:
            raise ConfigError(
                f"has more than {_MAX_VALUES} values once its aliases are filled in",
                file=self._file,
                line=line,
            )
        if len(self._open) >= _MAX_DEPTH or any(node is around for around in self._open):
            raise ConfigError(
                "aliases are nested too deeply, or without end",
                file=self._file,
                line=line,
                field=field_name(location) or None,
            )
        self._open.append(node)
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, location)
            if isinstance(node, yaml.SequenceNode):
                return [self.value(item, (*location, i)) for i, item in enumerate(node.value)]
            assert isinstance(node, yaml.ScalarNode)
            return self._scalar(node, location)
        finally:
            self._open.pop()

    def _mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, object]:
        values: dict[str, object] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag == "tag:yaml.org,2002:merge":
                self._note(line, location, "merge keys (<<) are not supported; aliases are")
                continue
            if key_node.tag != "tag:yaml.org,2002:str":
                self._note(line, location, "a key must be text: put it in quotes")
                continue
            key: str = key_node.value
            here = (*location, key)
            if key in values:
                self._note(line, here, f"is repeated; it already stands in line {self.lines[here]}")
                continue
            self.lines[here] = line
            values[key] = self.value(value_node, here)
        return values

    def _scalar(self, node: yaml.ScalarNode, location: Location) -> object:
        self.written[location] = node.value
        try:
            value: object = self._scalars.construct_object(node)
        except (yaml.YAMLError, ValueError, OverflowError):
            value = object()
        if isinstance(value, _SCALAR_TYPES):
            return value
        shown = node.value if len(node.value) <= 40 else f"{node.value[:37]}..."
        kind = node.tag.removeprefix("tag:yaml.org,2002:")
        line = node.start_mark.line + 1
        self._note(line, location, f"{shown!r} is not a valid {kind}")
        return None

    def _note(self, line: int, location: Location, problem: str) -> None:
        where = field_name(location) or None
        self.mistakes.append(ConfigError(problem, file=self._file, line=line, field=where))


def _bound_depth(text: str, file: str) -> None:
    """Refuses deep nesting before anything recursive sees it."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _MAX_DEPTH:
            line = event.start_mark.line + 1 if event.start_mark else None
            raise ConfigError(f"is nested deeper than {_MAX_DEPTH} levels", file=file, line=line)


def _syntax_problem(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or "is not valid YAML"
    if "'\\t'" in problem:
        return "a tab stands where YAML wants spaces"
    context = f" {error.context}" if error.context else ""
    return re.sub(r"\s+", " ", f"not valid YAML: {problem}{context}")
