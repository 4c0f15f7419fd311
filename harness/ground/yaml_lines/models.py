"""Checks a YAML document against a pydantic model and says every mistake in the user's words."""

from __future__ import annotations

import difflib
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, LiteralString, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, StringConstraints, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from harness.ground.errors import ConfigError
from harness.ground.yaml_lines.document import MAX_SAID, Document, Location, all_of, shown

AnyModel = TypeVar("AnyModel", bound=BaseModel)


def _is_known_schema(value: object) -> object:
    if isinstance(value, bool):
        raise PydanticCustomError("schema", "unknown value", {"choices": [1]})
    if isinstance(value, int) and value > 1:
        text = "is {value}, for a newer qnn-harness: update this one"
        raise PydanticCustomError("schema", text, {"value": str(value)[:20], "choices": [1]})
    return value


Text = Annotated[str, StringConstraints(strict=True)]
SchemaOne = Annotated[Literal[1], BeforeValidator(_is_known_schema), Field(alias="schema")]
"""The `schema: 1` that every file of ours begins with."""

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
    "greater_than_equal": ("ge", "at least"),
    "less_than_equal": ("le", "at most"),
    "string_too_long": ("max_length", "text of no more characters than"),
}
_Said = tuple[str, Sequence[object] | None]
"""A problem, and the choices that there are."""
_MOST_CHOICES = 200
_DIGIT = re.compile(r"[0-9]")
_LONGEST_WORD = 100


def check_document(
    document: Document,
    model: type[AnyModel],
    *,
    more: Callable[[Document], Iterable[ConfigError]] = lambda _: (),
) -> AnyModel:
    """The document as a model.

    `more` adds mistakes that concern several fields at once; it sees the document unchecked, so
    that they are reported together with the others. Raises one ConfigError for all of them.
    """
    if not isinstance(document.value, dict):
        problem = "is empty" if document.value is None else "must be a mapping of keys to values"
        raise document.mistake((), problem, _keys(model))
    mistakes = list(more(document))
    try:
        checked = model.model_validate(document.value)
    except ValidationError as error:
        mistakes += _explained(document, model, error)
    else:
        if not mistakes:
            return checked
    raise all_of(mistakes)


def names_taken_twice(
    document: Document,
    section: str,
    entries: Mapping[int, Mapping[str, object]],
    first: str,
    *others: str,
    named: Callable[[str], str] = str,
) -> Iterator[ConfigError]:
    """Entries of a section whose field `first` has the value of an earlier one's, as `named` says.

    Entries that differ in one of `others` may share it.
    """
    seen: dict[tuple[object, ...], int] = {}
    for index, entry in entries.items():
        value, rest = entry.get(first), [entry.get(field) for field in others]
        if not isinstance(value, str) or not all(isinstance(k, str | None) for k in rest):
            continue
        key = (named(value), *rest)
        if key in seen:
            line = document.line((section, seen[key], first))
            problem = f"{value!r} is taken already by line {line}"
            yield document.mistake((section, index, first), problem)
        seen.setdefault(key, index)


def entries_of(document: Document, section: str) -> dict[int, Mapping[str, object]]:
    """The entries of a list that have the right shape, by their place in it."""
    value = document.value.get(section) if isinstance(document.value, dict) else None
    listed = value if isinstance(value, list) else []
    return {index: entry for index, entry in enumerate(listed) if isinstance(entry, dict)}


def matching(
    pattern: re.Pattern[str], kind: LiteralString, problem: LiteralString
) -> Callable[[str], str]:
    """For `AfterValidator`: the whole text must match, or has this `problem`."""

    def check(text: str) -> str:
        if not pattern.fullmatch(text):
            raise PydanticCustomError(kind, problem)
        return text

    return check


def did_you_mean(word: str, choices: Collection[object]) -> str:
    """ ", did you mean 'x'?" if one of the choices is close to the word, else nothing.

    Of choices that differ in digits only, one with the same digits is meant, else the next number.
    Nothing is looked for among hundreds of choices, whose names are alike: it would take long.
    """
    if len(choices) > _MOST_CHOICES or len(word) > _LONGEST_WORD:
        return ""
    names = {str(choice).casefold(): str(choice) for choice in choices}
    asked = word.casefold()
    like = [one for one in names if _DIGIT.sub("0", one) == _DIGIT.sub("0", asked)]
    close = difflib.get_close_matches(asked, names, n=1, cutoff=0.6)
    if like:
        close = [min(like, key=lambda one: (sorted(one) != sorted(asked), _apart(one, asked)))]
    return f", did you mean {names[close[0]]!r}?" if close else ""


def _apart(one: str, other: str) -> int:
    first, second = (int("".join(_DIGIT.findall(text)) or 0) for text in (one, other))
    return abs(first - second)


def _explained(
    document: Document, model: type[BaseModel], error: ValidationError
) -> Iterator[ConfigError]:
    """The mistakes that are said in full; the others, which are counted, as places only."""
    details = error.errors(include_url=False)
    places = [_in_document(document, one["loc"], one["type"] == "missing") for one in details]
    ordered = sorted(zip(places, details, strict=True), key=lambda one: document.line(one[0]))
    for number, (place, detail) in enumerate(ordered):
        said: _Said = detail["type"], None
        if number <= MAX_SAID:
            said = _explain(document.written.get(place), model, place, detail)
        yield document.mistake(place, *said)


def _explain(
    written: str | None, model: type[BaseModel], location: Location, detail: ErrorDetails
) -> _Said:
    kind = detail["type"]
    if kind == "extra_forbidden":
        keys = _keys(_annotation(model, location[:-1]))
        return f"unknown key{did_you_mean(str(location[-1]), keys)}", keys
    if kind == "missing":
        return "is missing", None
    if kind in ("literal_error", "enum"):
        choices = _literals(_annotation(model, location))
        said = shown(str(detail["input"]) if written is None else written)
        return f"unknown value {said!r}{did_you_mean(said, choices)}", choices
    if kind == "string_type":
        quotes = f': put it in quotes, "{shown(written)}"' if written else ", and is empty"
        return f"must be text{'' if written is None else quotes}", None
    context = detail.get("ctx", {})
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return f"must be {words} {context[name]}", None
    problem = _TYPE_NAMES.get(kind) or detail["msg"].removeprefix("Value error, ")
    return problem[:1].lower() + problem[1:], context.get("choices")


def _in_document(document: Document, location: Sequence[str | int], missing: bool) -> Location:
    """Leaves out what pydantic adds to a path: names of union members and of validators."""
    found: Location = ()
    for part in location:
        if (*found, part) in document.lines:
            found = (*found, part)
    return (*found, location[-1]) if missing else found


def _keys(annotation: Any) -> list[str]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [field.alias or name for name, field in annotation.model_fields.items()]
    return []


def _annotation(annotation: Any, location: Location) -> Any:
    """The declared type at a place inside a model, or None where it cannot be told."""
    for part in location:
        annotation = _bare(annotation)
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
    return _bare(annotation)


def _bare(annotation: Any) -> Any:
    while typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated):
        members = [part for part in typing.get_args(annotation) if part is not type(None)]
        annotation = members[0]
    return annotation


def _literals(annotation: Any) -> list[object]:
    is_literal = typing.get_origin(annotation) is Literal
    return list(typing.get_args(annotation)) if is_literal else []
