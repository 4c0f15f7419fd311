"""Makes what docs/reference/api.md says of each public name: its signature and docstring, as text.

`python -m tests.unit.api_page` writes it below the examples, which people write; a test compares.
"""

import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import harness

PAGE: Final = Path(__file__).parents[2] / "docs/reference/api.md"
COMMAND: Final = "python -m tests.unit.api_page"


class _AsWritten(str):
    """A type as it stands in the code, which signatures put into quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def page(text: str) -> str:
    """The page with all that the code says; of `text` the examples are kept, under their titles."""
    head, *parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    sections = [head]
    for part in parts:
        title, _, body = part.partition("\n")
        example = body.partition("\n### ")[0].rstrip()
        sections.append(f"{title}\n{example}\n\n")
        names = title.removeprefix("## ").split(", ")
        sections.append("\n".join(line for name in names for line in _entry(name)))
        sections.append("\n")
    return "".join(sections).rstrip() + "\n"


def _entry(name: str) -> Iterator[str]:
    exported = getattr(harness, name)
    yield f"### {name}\n"
    if inspect.ismodule(exported):
        yield f"{_doc(exported)}\n"
        for inner, value in _public(exported):
            if inspect.isroutine(value) or inspect.isclass(value):
                yield from _item(f"{name}.{inner}", value)
            else:
                shown = sorted(value) if isinstance(value, Mapping) else value
                yield f"- `{name}.{inner}`: `{shown}`\n".replace("typing.", "")
        return
    yield from _item(name, exported)
    if inspect.isclass(exported):
        for inner, value in _members(exported):
            yield from _item(f"{name}.{inner}", value)


def _item(name: str, value: Any) -> Iterator[str]:
    """A signature, and below it what the code says of it."""
    yield f"- `{name}{_signature(value)}`\n"
    yield from (f"    {line}" if line else "" for line in f"{_doc(value)}\n".splitlines())
    yield ""


def _public(module: Any) -> Iterator[tuple[str, Any]]:
    names = getattr(module, "__all__", vars(module))
    members = ((name, getattr(module, name)) for name in names if not name.startswith("_"))
    yield from (member for member in members if not inspect.ismodule(member[1]))


def _members(of: type) -> Iterator[tuple[str, Any]]:
    """Methods and properties of our own, those of its bases behind them."""
    names: set[str] = set()
    for base in of.__mro__:
        if base.__module__.partition(".")[0] != harness.__name__:
            continue
        for name, value in vars(base).items():
            shown = inspect.isroutine(value) or isinstance(value, property)
            if shown and not name.startswith("_") and name not in names and inspect.getdoc(value):
                names.add(name)
                yield name, value


def _signature(value: Any) -> str:
    if isinstance(value, property):
        return f": {inspect.signature(value.fget).return_annotation}"
    if inspect.isclass(value) and getattr(value, "_is_protocol", False):
        return ""
    function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
    signature = inspect.signature(function)
    written = {**vars(value).get("__annotations__", {})} if inspect.isclass(value) else {}
    parameters = [
        parameter.replace(annotation=_AsWritten(written.get(parameter.name, parameter.annotation)))
        if parameter.annotation is not parameter.empty
        else parameter
        for parameter in signature.parameters.values()
        if parameter.name not in ("self", "cls")
    ]
    returns = signature.return_annotation
    gives = f" -> {returns}" if isinstance(returns, str) and returns != "None" else ""
    return f"{signature.replace(parameters=parameters, return_annotation=signature.empty)}{gives}"


def _doc(value: Any) -> str:
    return inspect.cleandoc(value.__doc__ or "")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
