"""The only reader of JSON: bounds are checked before memory is allocated (pure).

The text is not trusted: it may be nested without end, hold millions of small values, unpaired
surrogates, or numbers too large to calculate with.
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

if TYPE_CHECKING:
    from pydantic import BaseModel, TypeAdapter

MAX_DEPTH: Final = 64
MAX_VALUES: Final = 500_000
INTEGERS: Final = 1 << 64
"""The limit of integers: other readers of JSON may have no more than 64 bits."""
_TEXT: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"')
_TOKEN: Final = re.compile(_TEXT.pattern + rb"|[\[{]|[\]}]")
_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_OTHERS: Final = bytes(sorted(set(range(256)) - set(b"[]{}")))
_M = TypeVar("_M", bound="BaseModel")
_T = TypeVar("_T")


class JsonError(ValueError):
    """Text that is not JSON, or exceeds a limit; the message says where."""


def parse_json(content: bytes | str) -> Any:
    """Return the value of a JSON text. Raises JsonError.

    Numbers must be finite, and integers must have at most 64 bits.
    """
    from pydantic_core import from_json

    try:
        value = from_json(_bounded(content, MAX_VALUES), allow_inf_nan=False)
    except JsonError:
        raise
    except ValueError as error:
        raise JsonError(f"is not valid JSON: {error}") from error
    values = [value]
    while values:
        item = values.pop()
        if type(item) is dict:
            values.extend(item.values())
        elif type(item) is list:
            values.extend(item)
        elif type(item) is int and not -INTEGERS < item < INTEGERS:
            raise JsonError("has an integer of more than 64 bits")
        elif type(item) is float and math.isinf(item):
            raise JsonError("has a number larger than 1e308")
    return value


@overload
def parse_model(model: type[_M], content: bytes | str, most_values: int = MAX_VALUES) -> _M: ...
@overload
def parse_model(
    model: TypeAdapter[_T], content: bytes | str, most_values: int = MAX_VALUES
) -> _T: ...
def parse_model(
    model: type[_M] | TypeAdapter[_T], content: bytes | str, most_values: int = MAX_VALUES
) -> _M | _T:
    """Return an instance of a model from a JSON text. Raises JsonError or ValidationError.

    Both are ValueErrors that `problem_in` describes. Validation is strict: neither true nor "1" is
    accepted as a number.
    """
    bounded = _bounded(content, most_values)
    if isinstance(model, type):
        return model.model_validate_json(bounded, strict=True)
    return model.validate_json(bounded, strict=True)


def problem_in(error: ValueError) -> str:
    """Describe in one line why a file was not read, e.g. by the first field that is wrong."""
    from pydantic_core import ValidationError

    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    field = ".".join(map(str, first["loc"]))
    if first["loc"][-1:] == ("schema",) and first["type"] == "literal_error":
        return other_schema(first["input"], int(first["ctx"]["expected"]))
    if first["type"] == "json_invalid":
        return f"is not valid JSON: {first['ctx']['error']}"
    return f"{field}: {first['msg']}" if field else first["msg"]


OTHER_SCHEMA: Final = "is of schema "


def other_schema(schema: object, known: int) -> str:
    """Describe a `schema` other than the `known` one, and what to do.

    A `schema` that is not an integer is damage: no version of the harness wrote it.
    """
    reads = f"this version reads schema {known}"
    if type(schema) is not int:  # true is one for isinstance
        return f"is damaged: its schema is {reprlib.repr(schema)[:40]}, not a number; {reads}"
    advice = "; update it to read this file" if schema > known else ""
    return f"{OTHER_SCHEMA}{str(schema)[:20]}; {reads}{advice}"


def require_bounded(content: bytes, most_values: int) -> None:
    """Raise JsonError for JSON that is nested too deep or has too many values, without parsing it.

    Values are counted by the brackets and commas outside of strings: small values take much more
    memory than text.
    """
    opened = content.count(b"[") + content.count(b"{")
    if opened <= MAX_DEPTH and opened + content.count(b",") <= most_values:
        return
    plain = _TEXT.sub(b"", content)
    opened = plain.count(b"[") + plain.count(b"{")
    if opened + plain.count(b",") > most_values:
        raise JsonError(f"has more than {most_values:,} values")
    if opened <= MAX_DEPTH:
        return
    brackets = plain.translate(_BRACKETS, _OTHERS)
    for _ in range(MAX_DEPTH):
        brackets = brackets.replace(b"[]", b"")  # the innermost of all
    if brackets and (offset := next(_depths(content), None)) is not None:
        line, column = content.count(b"\n", 0, offset) + 1, offset - content.rfind(b"\n", 0, offset)
        position = f"at line {line} column {column}"
        raise JsonError(f"is nested deeper than {MAX_DEPTH} levels {position}")


def without_depths(content: bytes) -> bytes:
    """Return JSON with null in place of values that are nested too deep."""
    places = [0, *_depths(content), None]
    parts = zip(places[::2], places[1::2], strict=False)
    return b"null".join(content[begin:end] for begin, end in parts)


def _bounded(content: bytes | str, most_values: int) -> bytes:
    if isinstance(content, str):
        content = content.encode("utf-8", "surrogatepass")  # which the parser refuses
    require_bounded(content, most_values)
    return content


def _depths(content: bytes) -> Iterator[int]:
    """Yield the start and the end of each value that is nested too deep."""
    depth = 0
    for match in _TOKEN.finditer(content):
        if match[0] in b"[{":
            depth += 1
            if depth == MAX_DEPTH + 1:
                yield match.start()
        elif match[0] in b"]}":
            depth -= 1
            if depth == MAX_DEPTH:
                yield match.end()
