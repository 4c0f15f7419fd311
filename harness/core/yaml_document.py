"""YAML files written by people: read with line numbers, and checked against a pydantic model.

The file is turned into plain values without running YAML's constructors for other types. All
mistakes are reported in one ConfigError with a line for each.

Not ruamel.yaml 0.19, whose values have positions: it takes 8 times as long, 3 s and a
RecursionError for 10 KB of brackets, stops at the first repeated key, and accepts unknown tags,
merge keys and surrogates, so that each check here would be needed all the same.
"""

from __future__ import annotations

import contextlib
import datetime
import difflib
import math
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, LiteralString, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, Field, StringConstraints, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError
from yaml.composer import Composer

from harness.core.bounded_json import other_schema
from harness.core.errors import ConfigError
from harness.core.files import read_bounded
from harness.core.outgoing_text import without_secrets

try:
    from yaml import CSafeLoader
except ImportError:  # a PyYAML that was built without libyaml
    from yaml import SafeLoader as CSafeLoader  # type: ignore[assignment]

Location = tuple[str | int, ...]

_MAX_BYTES = 1 << 20
_MAX_DEPTH = 32
_MAX_VALUES = 100_000
_MAX_TEXT_CHARS = 10_000
# PyYAML takes quadratic time for 1:59:59..., and Python refuses to print much longer numbers.
_MAX_NUMBER_CHARS = 64
MAX_MISTAKES = 20
"""The mistakes that a message describes; further ones are counted."""
_MAX_PROBLEM_CHARS = 500
_TAG = "tag:yaml.org,2002:"
_SCALAR_TYPES = (bool, int, float, str, datetime.date, type(None))


@dataclass(frozen=True)
class Document:
    """A file's content: plain values, and the line (1-based) at which each begins.

    `value` is None, a bool, int, float, str or date, or a list or str-keyed dict of these.
    `lines` and `written` are keyed by the path to a value, e.g. ("devices", 0, "name");
    `written` is a scalar as it stands in the file.
    """

    file: str
    value: object
    lines: Mapping[Location, int]
    written: Mapping[Location, str]

    def line(self, location: Location) -> int:
        """Return the line of a value, or of its nearest parent in the file."""
        for end in range(len(location), -1, -1):
            if location[:end] in self.lines:
                return self.lines[location[:end]]
        return 1

    def mistake(
        self, location: Location, problem: str, choices: Sequence[object] | None = None
    ) -> ConfigError:
        """Return a ConfigError for this place; a problem of more than 500 characters is cut."""
        return ConfigError(
            shown(problem, _MAX_PROBLEM_CHARS),
            file=self.file,
            line=self.line(location),
            field=field_name(location) or None,
            choices=choices,
        )


def field_name(location: Location) -> str:
    """Return the dotted path of a location: ("devices", 0, "name") -> devices[0].name."""
    text = ""
    for part in location:
        key = part if isinstance(part, int) else shown(part)
        text += f"[{key}]" if isinstance(part, int) else f".{key}" if text else str(key)
    return text


def shown(text: str, most: int = 60) -> str:
    """Shorten a text from a file for a message to at most `most` characters, without secrets."""
    text = without_secrets(text)  # before the cut: a part of a URL would hide its password
    return text if len(text) <= most else f"{text[: most - 3]}..."


def join_mistakes(mistakes: Iterable[ConfigError]) -> ConfigError:
    """Join mistakes into one ConfigError, a line each, in the order of the file.

    Missing keys come last, since another line often misspells them. After the first 20 mistakes,
    only the number of the others follows.
    """
    ordered = sorted(
        mistakes, key=lambda mistake: (mistake.problem.startswith("is missing"), mistake.line or 0)
    )
    if len(ordered) == 1:
        return ordered[0]
    texts = list(dict.fromkeys(map(str, ordered)))
    more = [f"and {len(texts) - MAX_MISTAKES} more"] if len(texts) > MAX_MISTAKES else []
    return ConfigError(texts[0], more=texts[1:MAX_MISTAKES] + more)


def read_document(path: Path, absent: ConfigError | None = None) -> Document:
    """Read a YAML file of at most 1 MiB; `absent` is raised if it does not exist.

    Raises ConfigError if it cannot be read, is not YAML, or has a repeated key, a merge key, custom
    tags, a text of more than 10,000 characters, a number of more than 64 characters, or more than
    100,000 values (aliases count each time they are used).
    """
    try:
        if not path.is_file():
            if path.exists():
                raise ConfigError("is not a file", file=path)
            raise absent or ConfigError("does not exist", file=path)
        content = read_bounded(path, _MAX_BYTES)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=path) from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError("is not UTF-8 text", file=path, line=line) from error
    return parse_document(text, str(path))


def parse_document(text: str, file: str) -> Document:
    """As `read_document`, for text already read; `file` is the name used in errors."""
    reader = _Reader(file)
    try:
        root = _root(text, file)
    except ConfigError:
        raise
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problem = "contains a character that YAML does not allow"
        raise ConfigError(problem, file=file, line=line) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        marked = mark.line + 1 if mark else None
        raise ConfigError(_syntax_problem(error), file=file, line=marked) from error
    except Exception as error:
        # PyYAML passes on the errors of int() and chr() for directives and escapes
        raise ConfigError(f"not valid YAML: {shown(str(error))}", file=file) from error
    value = reader.value(root, ()) if root is not None else None
    if reader.mistakes:
        raise join_mistakes(reader.mistakes)
    return Document(file, value, reader.lines, reader.written)


class _Bounded(Composer):
    """Composer with limits on the depth and the number of nodes."""

    file = ""
    _depth = _count = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        begin: yaml.Event = self.peek_event()  # type: ignore[attr-defined]
        line = begin.start_mark.line + 1 if begin.start_mark else None
        self._count += parent is None or index is not None  # a key has no index
        if self._count > _MAX_VALUES:
            raise ConfigError(f"has more than {_MAX_VALUES} values", file=self.file, line=line)
        if not isinstance(begin, yaml.CollectionStartEvent):
            return super().compose_node(parent, index)
        if self._depth >= _MAX_DEPTH:
            problem = f"is nested deeper than {_MAX_DEPTH} levels"
            raise ConfigError(problem, file=self.file, line=line)
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


class _Careful(_Bounded, yaml.SafeLoader):
    """PyYAML's own parser, with the best messages; it takes 2 ms for a device of a lab."""


class _Fast(_Bounded, CSafeLoader):
    """Libyaml's events for PyYAML's nodes."""

    def __init__(self, text: str) -> None:
        CSafeLoader.__init__(self, text)
        Composer.__init__(self)


def _root(text: str, file: str) -> yaml.Node | None:
    """Return the root node of a text; errors of libyaml are left to PyYAML's own parser."""
    loader: _Bounded = _Fast(text)
    loader.file = file
    try:
        root: yaml.Node | None = loader.get_single_node()
    except ConfigError:
        raise
    except Exception:
        loader = _Careful(text)
        loader.file = file
        root = loader.get_single_node()
    return root


class _Reader:
    """Converts YAML nodes to values, and collects mistakes instead of stopping at the first."""

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
            problem = f"has more than {_MAX_VALUES} values once its aliases are filled in"
            raise ConfigError(problem, file=self._file, line=line)
        if len(self._open) >= _MAX_DEPTH or any(node is outer for outer in self._open):
            problem, field = "aliases are too deep or refer to themselves", field_name(location)
            raise ConfigError(problem, file=self._file, line=line, field=field or None)
        self._open.append(node)
        try:
            if isinstance(node, yaml.MappingNode):
                self._want_tag(node, "map", location)
                return self._mapping(node, location)
            if isinstance(node, yaml.SequenceNode):
                self._want_tag(node, "seq", location)
                return [self.value(item, (*location, i)) for i, item in enumerate(node.value)]
            assert isinstance(node, yaml.ScalarNode)
            return self._scalar(node, location)
        finally:
            self._open.pop()

    def _mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, object]:
        values: dict[str, object] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag == f"{_TAG}merge":
                self._note(line, location, "merge keys (<<) are not supported; use aliases")
                continue
            if key_node.tag != f"{_TAG}str" or not isinstance(key_node, yaml.ScalarNode):
                self._note(line, location, "a key must be text: put it in quotes")
                continue
            key: str = key_node.value
            problem = _problem_of_text(key)
            if problem is not None:
                self._note(line, location, f"a key {problem}")
                continue
            here = (*location, key)
            if key in values:
                self._note(line, here, f"is repeated; line {self.lines[here]} already has it")
                continue
            self.lines[here] = line
            values[key] = self.value(value_node, here)
        return values

    def _scalar(self, node: yaml.ScalarNode, location: Location) -> object:
        line = node.start_mark.line + 1
        problem = _problem_of_text(node.value)
        if problem is not None:
            self._note(line, location, problem)
            return None
        self.written[location] = node.value
        value: object = object()
        if node.tag == f"{_TAG}str" or len(node.value) <= _MAX_NUMBER_CHARS:
            # PyYAML passes on the errors of int(), a dict or a match for `!!int ''` and `!!bool x`
            with contextlib.suppress(Exception):
                value = self._scalars.construct_object(node)
        infinite = isinstance(value, float) and not math.isfinite(value)
        if isinstance(value, _SCALAR_TYPES) and not infinite:
            return value
        kind = shown(node.tag.removeprefix(_TAG)).replace("timestamp", "date, as in 2027-01-31")
        self._note(line, location, f"{shown(node.value)!r} is not a valid {kind}")
        return None

    def _want_tag(self, node: yaml.Node, kind: str, location: Location) -> None:
        if node.tag != f"{_TAG}{kind}":
            problem = f"{shown(node.tag.removeprefix(_TAG))} is not a supported tag"
            self._note(node.start_mark.line + 1, location, problem)

    def _note(self, line: int, location: Location, problem: str) -> None:
        field = field_name(location) or None
        self.mistakes.append(ConfigError(problem, file=self._file, line=line, field=field))


def _problem_of_text(text: str) -> str | None:
    if len(text) > _MAX_TEXT_CHARS:
        return f"is longer than {_MAX_TEXT_CHARS} characters"
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        return "contains half of a character (a surrogate)"
    return None


def _syntax_problem(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or "is not valid YAML"
    if "'\\t'" in problem:
        return "contains a tab where YAML requires spaces"
    context = f" {error.context}" if error.context else ""
    return shown(" ".join(f"not valid YAML: {problem}{context}".split()), _MAX_PROBLEM_CHARS)


AnyModel = TypeVar("AnyModel", bound=BaseModel)


Text = Annotated[str, StringConstraints(strict=True)]


def matching(
    pattern: re.Pattern[str], kind: LiteralString, problem: LiteralString
) -> Callable[[str], str]:
    """Return a function for `AfterValidator`: raise `problem` unless the whole text matches."""

    def check(text: str) -> str:
        if not pattern.fullmatch(text):
            raise PydanticCustomError(kind, problem)
        return text

    return check


def in_schema(pattern: re.Pattern[str]) -> Any:
    """Return the field of a text that JSON Schema describes by `pattern`."""
    return Field(json_schema_extra={"pattern": f"^(?:{pattern.pattern})$"})


_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)
_is_name = matching(
    _NAME, "name", "must be lower-case letters, digits, dots, dashes or underscores, at most 64"
)
Name = Annotated[Text, AfterValidator(_is_name), in_schema(_NAME)]

_TYPE_NAMES = {
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "date_type": "must be a date, as in 2027-01-31",
    "date_from_datetime_parsing": "must be a date, as in 2027-01-31",
    "date_from_datetime_inexact": "must be a date without a time, as in 2027-01-31",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping of keys to values",
    "model_type": "must be a mapping of keys to values",
    "model_attributes_type": "must be a mapping of keys to values",
}
_BOUNDS = {
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "string_too_long": "must be text of at most {max_length} characters",
}
_Explanation = tuple[str, Sequence[object] | None]
"""A problem, and the valid choices if there are any."""
_MOST_CHOICES = 200
_LONGEST_WORD = 100


def check_document(
    document: Document,
    model: type[AnyModel],
    *,
    more: Callable[[Document], Iterable[ConfigError]] = lambda _: (),
) -> AnyModel:
    """Validate a document as an instance of a model.

    `more` adds mistakes that concern several fields at once; it gets the document unchecked, so
    that they are reported together with the others. Raises one ConfigError for all of them.
    """
    if not isinstance(document.value, dict):
        problem = "is empty" if document.value is None else "must be a mapping of keys to values"
        raise document.mistake((), problem, _keys(model))
    mistakes = list(more(document))
    try:
        checked = model.model_validate(document.value)
    except ValidationError as error:
        mistakes += _explain_all(document, model, error)
    else:
        if not mistakes:
            return checked
    raise join_mistakes(mistakes)


def duplicate_names(
    document: Document,
    section: str,
    entries: Mapping[int, Mapping[str, object]],
    first: str,
    *others: str,
    named: Callable[[str], str] = str,
) -> Iterator[ConfigError]:
    """Yield mistakes for entries whose field `first` repeats an earlier entry's, by key `named`.

    Entries that differ in one of `others` may share it.
    """
    first_index: dict[tuple[object, ...], int] = {}
    for index, entry in entries.items():
        value, rest = entry.get(first), [entry.get(field) for field in others]
        if not isinstance(value, str) or not all(isinstance(k, str | None) for k in rest):
            continue
        key = (named(value), *rest)
        if key in first_index:
            line = document.line((section, first_index[key], first))
            problem = f"{value!r} is already used in line {line}"
            yield document.mistake((section, index, first), problem)
        first_index.setdefault(key, index)


def entries_of(document: Document, section: str) -> dict[int, Mapping[str, object]]:
    """Return the entries of a list that are mappings, by their index."""
    value = document.value.get(section) if isinstance(document.value, dict) else None
    listed = value if isinstance(value, list) else []
    return {index: entry for index, entry in enumerate(listed) if isinstance(entry, dict)}


def did_you_mean(word: str, choices: Collection[object]) -> str:
    """Return ", did you mean 'x'?" if one of the choices is close to the word, else "".

    Hundreds of choices, which have similar names, are not searched: it would take long.
    """
    if len(choices) > _MOST_CHOICES or len(word) > _LONGEST_WORD:
        return ""
    names = {str(choice).casefold(): str(choice) for choice in choices}
    close = difflib.get_close_matches(word.casefold(), names, n=1, cutoff=0.6)
    return f", did you mean {names[close[0]]!r}?" if close else ""


def _explain_all(
    document: Document, model: type[BaseModel], error: ValidationError
) -> Iterator[ConfigError]:
    """Yield the first mistakes in full, and only the places of the others, which are counted."""
    details = error.errors(include_url=False)
    places = [
        _in_document(document, detail["loc"], detail["type"] == "missing") for detail in details
    ]
    ordered = sorted(zip(places, details, strict=True), key=lambda pair: document.line(pair[0]))
    for number, (place, detail) in enumerate(ordered):
        explanation: _Explanation = detail["type"], None
        if number <= MAX_MISTAKES:
            explanation = _explain(document, model, place, detail)
        yield document.mistake(place, *explanation)


def _explain(
    document: Document, model: type[BaseModel], location: Location, detail: ErrorDetails
) -> _Explanation:
    kind, key, written = detail["type"], str(location[-1]), document.written.get(location)
    if kind in ("extra_forbidden", "missing"):
        owner = _annotation(model, location[:-1], document.value)
    if kind == "extra_forbidden":
        keys, kinds = _keys(owner), owner.kinds() if hasattr(owner, "kinds") else {}
        owners = [f"`{owner.tag}: {name}`" for name in kinds if key in _keys(kinds[name])]
        if owners:
            return f"is valid only with {' or '.join(owners)}", keys
        return f"unknown key{did_you_mean(key, keys)}", keys
    if kind == "missing":
        fields: Mapping[str, FieldInfo] = getattr(owner, "model_fields", {})
        examples = fields[key].examples if key in fields else None
        context: Any = detail.get("ctx", {"choices": ["1"]} if key == "schema" else {})
        return context.get("problem", "is missing"), context.get("choices", examples)
    if kind == "literal_error" and key == "schema" and type(detail["input"]) is int:
        return other_schema(detail["input"], 1), None
    if kind in ("literal_error", "enum"):
        literal = _annotation(model, location, document.value)
        is_literal = typing.get_origin(literal) is Literal
        choices = list(typing.get_args(literal)) if is_literal else []
        word = shown(str(detail["input"]) if written is None else written)
        if word in map(str, choices):
            return f"must be {word} without quotes", None
        return f"unknown value {word!r}{did_you_mean(word, choices)}", choices
    if kind == "string_type":
        quotes = f': put it in quotes, "{shown(written)}"' if written else ", not empty"
        return f"must be text{'' if written is None else quotes}", None
    context = detail.get("ctx", {})
    if kind in _BOUNDS:
        return _BOUNDS[kind].format_map(context), None
    problem = _TYPE_NAMES.get(kind) or detail["msg"].removeprefix("Value error, ")
    return problem[:1].lower() + problem[1:], context.get("choices")


def _in_document(document: Document, location: Sequence[str | int], missing: bool) -> Location:
    """Remove the parts that pydantic adds to a path: names of union members and validators."""
    known: Location = ()
    for part in location:
        if (*known, part) in document.lines:
            known = (*known, part)
    return (*known, location[-1]) if missing else known


def _keys(annotation: Any) -> list[str]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [field.alias or name for name, field in annotation.model_fields.items()]
    return []


def _annotation(annotation: Any, location: Location, value: Any) -> Any:
    """Return the declared type at a place inside a model with this value, or None if unknown."""
    for part in location:
        annotation = _bare(annotation, value)
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            by_alias = {
                field.alias or name: field for name, field in annotation.model_fields.items()
            }
            field = by_alias.get(str(part))
            annotation = field.annotation if field else None
        else:
            origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
            is_mapping = isinstance(origin, type) and issubclass(origin, Mapping)
            annotation = arguments[1 if is_mapping else 0] if arguments else None
        value = value[part] if isinstance(value, list | dict) else None  # type: ignore[index]
    return _bare(annotation, value)


def _bare(annotation: Any, value: Any) -> Any:
    while typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated):
        annotation = next(part for part in typing.get_args(annotation) if part is not type(None))
    # a model that stands for several chooses one by the value
    return annotation.model_of(value) if hasattr(annotation, "model_of") else annotation
