"""The options of a context: what QNN's HTP backend takes when it loads a binary."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType
from typing import Final, Literal

from harness.core.errors import ConfigError

OptionValue = int | str
_NUMBERS: Final = {"flag": range(2), "MB": range((1 << 20) + 1), "bytes": range(1, (1 << 40) + 1)}


@dataclass(frozen=True)
class ContextOption:
    """One option of a context.

    `number` is that of QNN's `symbol`, of a `custom` option of HTP or a `standard` one. `value` is
    flag, MB or bytes, or has the words for 0, 1 and so on. `scope`: it is one `context`'s, that of
    contexts that are loaded as one `list`, or puts contexts into the `group` that the first of them
    begins. `needs` is an option without which it has no effect. `ort` is its name among the options
    of ONNX Runtime's QNN provider. `x86` is how libQnnHtp for x86-64 answers: 0, or a code. `since`
    is the oldest QNN that was seen to know it, of those tried (2.47 to 2.51); `targets` are those
    that it is meant for, and `source` is what names it.
    """

    name: str
    kind: str
    number: int
    symbol: str
    value: str
    scope: str
    needs: str
    ort: str
    x86: int
    since: str
    targets: str
    source: str

    @property
    def words(self) -> list[str]:
        """The words that it takes, none for a number."""
        return [] if self.value in _NUMBERS else self.value.split()

    @property
    def valid(self) -> list[str]:
        """The values that it takes, as a user writes them."""
        if self.value in ("MB", "bytes"):
            numbers = _NUMBERS[self.value]
            return [f"{self.name}=N, {numbers[0]} to {numbers[-1]} ({self.value})"]
        return [f"{self.name}={word}" for word in self.words or ("0", "1")]

    def check(self, value: object, field: str) -> OptionValue:
        """Return a value in its type. Raises ConfigError for one that it does not take."""
        text = str(int(value)) if isinstance(value, bool) else str(value)
        if text in self.words:
            return text
        number = int(text) if re.fullmatch("[0-9]{1,15}", text) else -1
        if number not in _NUMBERS.get(self.value, ()):
            problem = f"{text[:80]!r} is not a value of {self.name}"
            raise ConfigError(problem, field=field, choices=self.valid)
        return number


def _table() -> Mapping[str, ContextOption]:
    text = files("harness.core").joinpath("context-options.tsv").read_text("utf-8")
    options = {}
    for line in text.splitlines()[1:]:
        name, kind, number, symbol, value, scope, needs, ort, x86, *rest = line.split("\t")
        fields = (name, kind, int(number), symbol, value, scope, needs, ort, int(x86))
        options[name] = ContextOption(*fields, *rest)
    return MappingProxyType(options)


CONTEXT_OPTIONS: Final = _table()
"""All options by name."""


def checked_options(
    options: Mapping[str, object], field: str = "options"
) -> dict[str, OptionValue]:
    """Return options with values in their types.

    Raises ConfigError, listing what is valid, for an unknown name, a value that an option does not
    take, and an option without the one that it needs.
    """
    if not isinstance(options, Mapping):
        problem = 'must be a mapping of names to values, as {"reused_io_limit_mb": 64}'
        raise ConfigError(problem, field=field)
    values = {}
    for name, value in options.items():
        if name not in CONTEXT_OPTIONS:
            problem = f"unknown context option {str(name)[:80]!r}"
            raise ConfigError(problem, field=field, choices=CONTEXT_OPTIONS)
        values[name] = CONTEXT_OPTIONS[name].check(value, field)
    for name in values:
        needed = CONTEXT_OPTIONS[name].needs
        if needed and not values.get(needed):
            raise ConfigError(f"{name} has no effect without {needed}; add {needed}=1", field=field)
    return values


def parsed_options(texts: Iterable[str], field: str) -> dict[str, OptionValue]:
    """Return the options of texts like `NAME=VALUE`. Raises ConfigError as `checked_options`."""
    options: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            problem = f"{text[:80]!r} is not of the form NAME=VALUE"
            raise ConfigError(problem, field=field, choices=CONTEXT_OPTIONS)
        if options.setdefault(name, value) != value:
            raise ConfigError(f"{name[:80]} has two values: {options[name]}, {value}", field=field)
    return checked_options(options, field)


def option_fields(options: Mapping[str, object] | None, context: int = 0) -> dict[str, str]:
    """Return the fields of a plan's step that loads a context with these options.

    Context 0 begins a group, and the others join it. Raises ConfigError as `checked_options`.
    """
    fields = {}
    for name, value in checked_options(options or {}).items():
        option = CONTEXT_OPTIONS[name]
        number = option.words.index(value) if isinstance(value, str) else value
        if option.scope == "group":
            fields["max_spill_fill"] = str(number)
            fields |= {"group": "0"} if context else {}
            fields |= {"concurrent": "1"} if option.name == "concurrent_group" else {}
        else:
            fields[f"{option.kind}.{option.number}"] = str(number)
    return fields


def any_of(options: Mapping[str, object], scope: Literal["list", "group"]) -> bool:
    """Return whether one of these options is that of a list, or of a group."""
    return any(CONTEXT_OPTIONS[name].scope == scope for name in options)
