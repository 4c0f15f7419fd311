"""Plans, the probe's input for one process: steps, settings and their text form (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Final, Literal
from zlib import crc32

from harness.core.context_options import option_fields
from harness.core.engine import CASE_TIMEOUT_S
from harness.core.errors import ConfigError
from harness.core.outgoing_text import counted

FieldType = Literal["text", "number", "real", "word"]

SOURCE_FOLDER: Final = Path(__file__).parent / "native"
_NOT_C: Final = re.compile(r"/\*.*?\*/|^#.*?$", re.DOTALL | re.MULTILINE)
_ENTRY: Final = re.compile(
    r'^(LIMIT|LINE|VERB)\("?([\w-]+)"?,\s(.*?)\)$(?!\n )', re.DOTALL | re.MULTILINE
)
_FIELD: Final = re.compile(r'(MUST|MAY|LIST|NUMBERS)\("([a-z_.0]+)", (\w+)(?:\(([^()]*)\))?\)')
_KINDS: Final[Mapping[str, FieldType]] = {"TEXT": "text", "REAL": "real", "NUMBER": "number"}
_NUMBERED_KEY: Final = re.compile(r"([a-z]+\.)(0|[1-9][0-9]{0,18})")
_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_REAL: Final = re.compile(r"[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]{1,3})?")


@dataclass(frozen=True)
class Field:
    """Type and bounds of a field.

    `least` and `most` bound a number, or, for a key that ends in a dot, the number after it.
    """

    required: bool
    kind: FieldType = "text"
    least: int = 0
    most: int = 10**19 - 1
    words: tuple[str, ...] = ()

    def check(self, key: str, value: str) -> None:
        """Raise ConfigError if the field `key` cannot have this value."""
        try:
            encoded = value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise ConfigError(f"{value!r} cannot be encoded as UTF-8", field=key) from None
        if not encoded or b"\0" in encoded:
            raise ConfigError(f"{value!r} is empty or has a NUL", field=key)
        if self.kind == "word" and value not in self.words:
            raise ConfigError(f"no {key} {value!r}", field=key, choices=self.words)
        if self.kind == "real" and not (_REAL.fullmatch(value) and float(value) < 1e300):
            raise ConfigError(f"{value!r} is not a real number", field=key)
        if self.kind == "number":
            if not _NUMBER.fullmatch(value):
                raise ConfigError(f"{value!r} is not a number", field=key)
            bounded = not _NUMBERED_KEY.fullmatch(key)  # else the bounds are its number's
            if bounded and not self.least <= int(value) <= self.most:
                raise ConfigError(f"{value} is not {self.least} to {self.most}", field=key)


Fields = Mapping[str, Field]


def check_fields(name: str, fields: Mapping[str, str]) -> None:
    """Raise ConfigError for an unknown, missing or invalid field of the line `name`."""
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
        return Field(required, "word", words=tuple("".join(bound.split('"')[1::2]).split(" ")))
    if kind in ("BELOW", "ONE_TO"):
        most = LIMITS[bound] if bound in LIMITS else int(bound)
        least = int(kind == "ONE_TO")
        return Field(required, "number", least, most - 1 + least)
    if need in ("LIST", "NUMBERS"):
        return Field(required, "number" if need == "NUMBERS" else "text", most=LIMITS[kind] - 1)
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


LogLevel = Literal["off", "error", "warn", "info", "verbose", "debug"]
MemoryDetail = Literal["off", "rss", "pss"]
ProfileLevel = Literal["basic", "detailed"]

_QUOTED: Final = re.compile(rb"[^!-$&-~]")


@dataclass(frozen=True)
class Step:
    """One line of a plan: a verb and its fields, all of them text.

    Verbs and fields are those of native/verbs.h. Raises ConfigError for a verb or field that does
    not exist, a required field that is missing, or an invalid value.
    """

    verb: str
    fields: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = [verb for verb in VERBS if verb != "set"]
        if self.verb not in known:
            raise ConfigError(f"no verb {self.verb!r}", field="verb", choices=known)
        check_fields(self.verb, self.fields)

    def line(self) -> str:
        """Return the step as a line of a plan, without a line end."""
        return _line(self.verb, self.fields)


_COOLING: Final = "/sys/class/thermal"
_BESIDE_ROUNDS_S: Final = 100.0


@dataclass(frozen=True)
class Rounds:
    """Number of executions: `most` that count, after `warmup` that do not.

    More are executed until `least_ms` have passed. No further round begins after `budget_ms` (None:
    no limit), but at least one is executed; if the warm-up takes all the time, its last round
    counts.
    """

    most: int = 1
    warmup: int = 0
    budget_ms: int | None = None
    least_ms: int | None = None

    @property
    def timeout_s(self) -> float:
        """The time limit of a process with these rounds."""
        return max(CASE_TIMEOUT_S, (self.budget_ms or 0) / 1000 + _BESIDE_ROUNDS_S)

    def shared(self, steps: int) -> Rounds:
        """Return the rounds of one of several steps that share the time."""
        budget, least = (
            None if ms is None else max(1, ms // max(1, steps))
            for ms in (self.budget_ms, self.least_ms)
        )
        return replace(self, budget_ms=budget, least_ms=least)

    def halves(self) -> tuple[Rounds, Rounds]:
        """Split into two steps, whose outputs are compared: the second needs no warm-up."""
        half = self.shared(2)
        return (
            replace(half, most=(self.most + 1) // 2),
            replace(half, most=max(1, self.most // 2), warmup=0),
        )

    def fields(self) -> dict[str, str]:
        return texts(
            repeat=self.most,
            warmup=self.warmup or None,
            budget_ms=self.budget_ms,
            least_ms=self.least_ms,
            cooling=None if self.budget_ms is None else _COOLING,
        )


ONCE: Final = Rounds()
DEFAULT_WINDOW: Final = 4
"""The contexts that a window keeps loaded, unless a number is asked for."""
FULL: Final = Rounds(1024, 2, budget_ms=600_000, least_ms=60_000)
"""MLPerf's `min_query_count`, `max_duration` and `min_duration` of a performance run."""


def rounds_of(repeat: int | Rounds) -> Rounds:
    """Return a number of executions as rounds."""
    return repeat if isinstance(repeat, Rounds) else Rounds(repeat)


@dataclass(frozen=True)
class Settings:
    """Settings of the whole process.

    `deadline_ms`: the probe ends itself after so many milliseconds, reporting the step; None leaves
    it to the caller. `linger_ms`: it ends itself so much later, so that a debugger can attach
    meanwhile. `max_log_bytes` bounds the library's log; a quarter of it is reserved for errors.
    `memory`: RSS, or RSS and PSS (a millisecond or more per step), are measured around each step.
    `power`: the profile that the process votes for once it has a device; None: no vote.
    """

    deadline_ms: int | None = None
    linger_ms: int = 0
    log_level: LogLevel = "warn"
    max_log_bytes: int = 1 << 20
    memory: MemoryDetail = "pss"
    power: str | None = None

    def __post_init__(self) -> None:
        check_fields("set", self._fields())

    def line(self) -> str:
        """Return the settings as a line of a plan, without a line end."""
        return _line("set", self._fields())

    def _fields(self) -> dict[str, str]:
        return texts(
            log_level=self.log_level,
            max_log_bytes=self.max_log_bytes,
            memory=self.memory,
            power=self.power,
            deadline_ms=self.deadline_ms,
            linger_ms=self.linger_ms or None,
        )


@dataclass(frozen=True)
class Plan:
    """Steps of one probe process, in order.

    After the first step that fails the probe skips the steps up to `cleanup`; those after it always
    run. A step that has nothing to free is skipped, too.
    """

    steps: tuple[Step, ...]
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", tuple(self.steps))
        most = LIMITS["PLAN_STEPS_MAX"]
        if len(self.steps) > most:
            raise ConfigError(f"{counted(len(self.steps), 'step')}; at most {most} are possible")

    def text(self) -> str:
        """Return the plan as the probe reads it: ASCII, a line each, after one with a checksum.

        Raises ConfigError if a line or the whole is longer than the probe accepts.
        """
        return self._text

    @cached_property
    def _text(self) -> str:  # a run sends it, looks for it in the answer, and keeps it
        return sealed([self.settings.line(), *(step.line() for step in self.steps)])


def loads(step: Step) -> int:
    """Return the number of contexts that a step loads."""
    if step.verb == "context-load-list":
        return sum(name.startswith("file.") for name in step.fields)
    return int(step.verb in ("context-load", "executorch-context", "ort-session"))


def sealed(lines: Iterable[str]) -> str:
    """Return lines after a first one with their length and checksum, which detects damage.

    Raises ConfigError if a line or the whole is longer than the probe accepts.
    """
    lines = list(lines)
    for number, line in enumerate(lines, 2):
        if len(line) >= LIMITS["PLAN_LINE_MAX"]:
            raise ConfigError(f"a step of {len(line)} bytes is too long", line=number)
    body = "".join(f"{line}\n" for line in lines)
    if len(body) > LIMITS["PLAN_BYTES_MAX"]:
        raise ConfigError(f"a plan of {len(body)} bytes is longer than {LIMITS['PLAN_BYTES_MAX']}")
    return f"probe-plan 2 bytes={len(body)} crc32={crc32(body.encode()):08x}\n{body}"


def backend_load(lib: str) -> Step:
    """Open the backend library (a path on the device)."""
    return Step("backend-load", {"lib": lib})


def system_load(lib: str) -> Step:
    """Open libQnnSystem, which reads the metadata that `execute` and `context_inspect` need."""
    return Step("system-load", {"lib": lib})


def device_create(*, soc: int | None = None, arch: int | None = None) -> Step:
    """Create the device, for a SoC model id or HTP arch if one is given."""
    return Step("device-create", texts(soc=soc, arch=arch))


def context_inspect(file: str, *, offset: int | None = None, size: int | None = None) -> Step:
    """Report the metadata of a context binary, which may lie inside of a file (bytes)."""
    return Step("context-inspect", texts(file=file, offset=offset, bytes=size))


def context_load(
    context: int,
    file: str,
    *,
    max_bytes: int | None = None,
    profile: ProfileLevel | None = None,
    options: Mapping[str, object] | None = None,
) -> Step:
    """Create a context from a binary; a file above `max_bytes` is not read.

    With `profile` the library's own events are reported. `options` are context options by name
    (docs/reference/context-options.md); a group of contexts is that of context 0. Raises
    ConfigError for one that does not exist or a value that it does not accept.
    """
    fields = texts(context=context, file=file, max_bytes=max_bytes, profile=profile)
    return Step("context-load", fields | option_fields(options, context))


def execute(
    context: int,
    *,
    graph: int = 0,
    inputs: Iterable[str] = (),
    expected: Iterable[str | None] = (),
    saved: Iterable[str | None] = (),
    tolerance: float = 0.0,
    repeat: int | Rounds = 1,
) -> Step:
    """Execute a graph `repeat` times, or in rounds, with inputs from files.

    Every run's outputs are compared with the files in `expected` (None: not this one): elements
    may differ by `tolerance`, in the unit of the tensor's raw values. `saved` names files for the
    last run's outputs. Raises ConfigError for a tolerance that is negative or no number.
    """
    files = executed_fields(inputs, expected, saved, tolerance, repeat)
    return Step("execute", texts(context=context, graph=graph) | files)


def context_free(context: int) -> Step:
    """Free a context, if it is loaded."""
    return Step("context-free", texts(context=context))


def texts(**values: object) -> dict[str, str]:
    """Return the fields that are not None, as text."""
    return {key: str(value) for key, value in values.items() if value is not None}


def executed_fields(
    inputs: Iterable[str],
    expected: Iterable[str | None],
    saved: Iterable[str | None],
    tolerance: float,
    repeat: int | Rounds,
) -> dict[str, str]:
    """Return the fields of each verb that executes: see `execute`."""
    files = numbered("input", inputs) | numbered("expect", expected) | numbered("save", saved)
    return files | {"tolerance": f"{tolerance:.17g}"} | rounds_of(repeat).fields()


def numbered(key: str, values: Iterable[object | None]) -> dict[str, str]:
    """Return fields `key.0`, `key.1` and so on, without those that are None."""
    return texts(**{f"{key}.{index}": value for index, value in enumerate(values)})


def _line(verb: str, fields: Mapping[str, str]) -> str:
    encoded = ((key, value.encode("utf-8", "surrogateescape")) for key, value in fields.items())
    quoted = (
        (key, _QUOTED.sub(lambda match: b"%%%02X" % match[0][0], text)) for key, text in encoded
    )
    return " ".join([verb, *(f"{key}={text.decode()}" for key, text in quoted)])
