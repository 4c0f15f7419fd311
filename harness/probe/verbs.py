"""The verbs of the probe, their fields and limits, as native/verbs.h has them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from harness.ground.errors import ConfigError

FieldType = Literal["text", "number", "real", "word"]

SOURCE_FOLDER: Final = Path(__file__).parent / "native"
_NOT_C: Final = re.compile(r"/\*.*?\*/|^#.*?$", re.DOTALL | re.MULTILINE)
_ENTRY: Final = re.compile(
    r'^(LIMIT|LINE|VERB)\("?([\w-]+)"?,\s(.*?)\)$(?!\n )', re.DOTALL | re.MULTILINE
)
_FIELD: Final = re.compile(r'(MUST|MAY|LIST)\("([a-z_.0]+)", (\w+)(?:\(([^()]*)\))?\)')
_KINDS: Final[Mapping[str, FieldType]] = {"TEXT": "text", "REAL": "real", "NUMBER": "number"}
_NUMBERED_KEY: Final = re.compile(r"([a-z]+\.)(0|[1-9][0-9]{0,18})")
_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_REAL: Final = re.compile(r"[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]{1,3})?")


@dataclass(frozen=True)
class Field:
    """What a field of a line holds.

    `least` and `most` bound a number, or, of a key that ends in a dot, the number that follows it.
    """

    required: bool
    kind: FieldType = "text"
    least: int = 0
    most: int = 10**19 - 1
    words: tuple[str, ...] = ()

    def check(self, key: str, value: str) -> None:
        """Raises ConfigError if the field `key` cannot have this value."""
        try:
            encoded = value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise ConfigError(f"{value!r} has no UTF-8 form", field=key) from None
        if not encoded or b"\0" in encoded:
            raise ConfigError(f"{value!r} is empty or holds a NUL", field=key)
        if self.kind == "word" and value not in self.words:
            raise ConfigError(f"no {key} {value!r}", field=key, choices=self.words)
        if self.kind == "real" and not (_REAL.fullmatch(value) and float(value) < 1e300):
            raise ConfigError(f"{value!r} is not a real", field=key)
        if self.kind == "number":
            if not _NUMBER.fullmatch(value):
                raise ConfigError(f"{value!r} is not a number", field=key)
            if not self.least <= int(value) <= self.most:
                raise ConfigError(f"{value} is not {self.least} to {self.most}", field=key)


Fields = Mapping[str, Field]


def check_fields(name: str, fields: Mapping[str, str]) -> None:
    """Raises ConfigError for a field that the line `name` does not take or needs, or its value."""
    rules = VERBS[name]
    most = LIMITS["STEP_FIELDS_MAX"]
    if len(fields) > most:
        raise ConfigError(f"more than {most} fields", field=name)
    for key, value in fields.items():
        rule = _rule(key, rules)
        if rule is None:
            raise ConfigError(f"{name} has no field {key!r}", field=key, choices=_keys(rules))
        rule.check(key, value)
    for key, rule in rules.items():
        if rule.required and key not in fields:
            raise ConfigError(f"{name} needs {key!r}", field=key)


def _keys(rules: Fields) -> list[str]:
    return [f"{key}0 to {rule.most}" if key.endswith(".") else key for key, rule in rules.items()]


def _rule(key: str, rules: Fields) -> Field | None:
    numbered = _NUMBERED_KEY.fullmatch(key)
    if numbered is None or key in rules:
        return None if key.endswith(".") else rules.get(key)
    rule = rules.get(numbered[1])
    return rule if rule is not None and int(numbered[2]) <= rule.most else None


def _field(need: str, kind: str, bound: str) -> Field:
    required = need == "MUST"
    if kind == "ONE_OF":
        return Field(required, "word", words=tuple(bound.strip('"').split(" ")))
    if kind in ("BELOW", "ONE_TO"):
        most = LIMITS[bound] if bound in LIMITS else int(bound)
        least = int(kind == "ONE_TO")
        return Field(required, "number", least, most - 1 + least)
    if need == "LIST":
        return Field(required, most=LIMITS[kind] - 1)
    return Field(required, _KINDS[kind])


# Read as the module itself is, when it is imported: it belongs to the code.
_TABLE: Final = _NOT_C.sub("", (SOURCE_FOLDER / "verbs.h").read_text("ascii"))
LIMITS: Final[Mapping[str, int]] = {
    name: int(rest) for entry, name, rest in _ENTRY.findall(_TABLE) if entry == "LIMIT"
}
"""Limits by their names in C."""
VERBS: Final[Mapping[str, Fields]] = {
    name: {key: _field(need, kind, bound) for need, key, kind, bound in _FIELD.findall(rest)}
    for entry, name, rest in _ENTRY.findall(_TABLE)
    if entry != "LIMIT"
}
"""The fields of each line that a plan may have, `set` for its settings among them."""
