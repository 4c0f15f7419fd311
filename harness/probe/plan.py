"""What the probe is told to do in one process: steps, settings and their text form (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args
from urllib.parse import quote_from_bytes, unquote_to_bytes

from harness.errors import ConfigError
from harness.probe.memory_verbs import MEMORY_VERBS, OPTIONAL_MEMORY_FIELDS, Kind
from harness.probe.ort_verbs import OPTIONAL_ORT_FIELDS, ORT_VERBS

LogLevel = Literal["off", "error", "warn", "info", "verbose", "debug"]
MemoryDetail = Literal["off", "rss", "pss"]

MAX_STEPS: Final = 65536
MAX_CONTEXTS: Final = 8192
MAX_TENSORS: Final = 512
MAX_LINE_BYTES: Final = 16384
MAX_PLAN_BYTES: Final = 8 << 20
_MAX_FIELDS: Final = 64

_FIRST_LINE: Final = "probe-plan 1"
_VISIBLE: Final = bytes(code for code in range(0x21, 0x7F) if code != ord("%"))
_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_REAL: Final = re.compile(r"[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]{1,3})?")
_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NUMBERED_KEY: Final = re.compile(r"([a-z]+\.)(0|[1-9][0-9]{0,2})")

# The same rules as in native/plan.c, so that a bad plan is refused before it travels; a test
# gives the probe every verb. A key that ends in a dot is followed by a number: `input.0`.
_VERBS: Final[Mapping[str, Mapping[str, Kind]]] = {
    "backend-load": {"lib": "text"},
    "system-load": {"lib": "text"},
    "log-create": {},
    "backend-create": {},
    "device-create": {"soc": "number", "arch": "number"},
    "context-inspect": {"context": "number", "file": "text", "max_bytes": "number"},
    "context-load": {
        "context": "number",
        "file": "text",
        "max_bytes": "number",
        "group": "number",
        "max_spill_fill": "number",
    },
    "execute": {
        "context": "number",
        "graph": "number",
        "input.": "text",
        "expect.": "text",
        "save.": "text",
        "tolerance": "real",
        "repeat": "number",
    },
    "context-free": {"context": "number"},
    "device-free": {},
    "backend-free": {},
    "log-free": {},
    "cleanup": {},
    "noop": {},
    "sleep": {"ms": "number"},
    "crash": {"signal": "number"},
    "hang": {},
    "spew": {"bytes": "number", "to": "text"},
    "exit": {"code": "number"},
    **MEMORY_VERBS,
    **ORT_VERBS,
}
_OPTIONAL: Final = frozenset(
    {"soc", "arch", "max_bytes", "input.", "expect.", "save.", "tolerance", "repeat", "to"}
    | OPTIONAL_ORT_FIELDS
    | {("context-inspect", "context")}
    | OPTIONAL_MEMORY_FIELDS
)


@dataclass(frozen=True)
class Step:
    """One line of a plan: a verb and its fields, all of them text.

    Verbs and fields are those of native/plan.c. Raises ConfigError for a verb or field that does
    not exist, a required field that is missing, or a value that is not what the field holds.
    """

    verb: str
    fields: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rules = _VERBS.get(self.verb)
        if rules is None:
            raise ConfigError(f"no verb {self.verb!r}", field="verb", choices=_VERBS)
        if len(self.fields) > _MAX_FIELDS:
            raise ConfigError(f"more than {_MAX_FIELDS} fields", field=self.verb)
        for key, value in self.fields.items():
            _check_value(self.verb, key, rules.get(_rule_name(key)), value)
        missing = [
            key
            for key in rules
            if key not in _OPTIONAL and (self.verb, key) not in _OPTIONAL and key not in self.fields
        ]
        if missing:
            raise ConfigError(f"{self.verb} needs {missing[0]!r}", field=missing[0])
        if int(self.fields.get("context", "0")) >= MAX_CONTEXTS:
            raise ConfigError(f"context must be below {MAX_CONTEXTS}", field="context")

    def line(self) -> str:
        """The step as it stands in a plan, without a line end."""
        return _line(self.verb, self.fields)


@dataclass(frozen=True)
class Settings:
    """What holds for the whole process.

    `deadline_ms`: the probe ends itself after so many milliseconds, saying at which step; None
    leaves it to whoever runs the plan. `linger_ms`: so much later it ends itself, for a debugger
    to look at it meanwhile. `max_log_bytes` bounds what the library logs; a quarter of
    it is kept for errors. `memory`: whether RSS, or RSS and PSS (a millisecond or more per step),
    are measured around each step.
    """

    deadline_ms: int | None = None
    linger_ms: int = 0
    log_level: LogLevel = "warn"
    max_log_bytes: int = 1 << 20
    memory: MemoryDetail = "pss"

    def __post_init__(self) -> None:
        if self.deadline_ms is not None and not 0 < self.deadline_ms < 10**12:
            raise ConfigError(f"not a deadline: {self.deadline_ms} ms", field="deadline_ms")
        if not 0 <= self.linger_ms < 10**6:
            raise ConfigError(f"not a time: {self.linger_ms} ms", field="linger_ms")
        if not 0 <= self.max_log_bytes < 10**12:
            raise ConfigError(f"not a size: {self.max_log_bytes}", field="max_log_bytes")
        for name, choices in (("log_level", LogLevel), ("memory", MemoryDetail)):
            if getattr(self, name) not in get_args(choices):
                problem = f"no {name} {getattr(self, name)!r}"
                raise ConfigError(problem, field=name, choices=get_args(choices))

    def line(self) -> str:
        """The settings as they stand in a plan, without a line end."""
        fields = {
            "log_level": self.log_level,
            "max_log_bytes": str(self.max_log_bytes),
            "memory": self.memory,
        }
        if self.deadline_ms is not None:
            fields["deadline_ms"] = str(self.deadline_ms)
        if self.linger_ms:
            fields["linger_ms"] = str(self.linger_ms)
        return _line("set", fields)


@dataclass(frozen=True)
class Plan:
    """What one probe process does, in order.

    The first step that fails makes the probe skip the steps up to `cleanup`; those behind it are
    always tried. What there is nothing to free of is skipped, too.
    """

    steps: tuple[Step, ...]
    settings: Settings = Settings()

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", tuple(self.steps))
        if len(self.steps) > MAX_STEPS:
            raise ConfigError(f"{len(self.steps)} steps, at most {MAX_STEPS} are possible")

    def text(self) -> str:
        """The plan as the probe reads it: ASCII, one line each, its last line saying it is whole.

        Raises ConfigError if a line or the whole is longer than the probe takes.
        """
        lines = [_FIRST_LINE, self.settings.line(), *(step.line() for step in self.steps)]
        for number, line in enumerate(lines, 1):
            if len(line) >= MAX_LINE_BYTES:
                raise ConfigError(f"a step of {len(line)} bytes is too long", line=number)
        text = "\n".join((*lines, f"end steps={len(self.steps)}", ""))
        if len(text) > MAX_PLAN_BYTES:
            raise ConfigError(f"a plan of {len(text)} bytes is longer than {MAX_PLAN_BYTES}")
        return text


def parse(text: str) -> Plan:
    """The plan that has this text. Raises ConfigError, with the line, if there is none."""
    lines = text.split("\n")
    if lines[0] != _FIRST_LINE or not text.isascii():
        raise ConfigError("not a probe plan", line=1)
    settings = Settings()
    steps: list[Step] = []
    for number, line in enumerate(lines[1:], 2):
        verb, *parts = line.split(" ")
        try:
            if len(line) >= MAX_LINE_BYTES:
                raise ConfigError("a line that is too long")
            fields = _parse_fields(parts)
            if verb == "end":
                if fields != {"steps": str(len(steps))} or lines[number:] != [""]:
                    raise ConfigError("the plan's end does not fit the plan")
                return Plan(tuple(steps), settings)
            if verb == "set" and not steps:
                settings = _settings(fields)
            else:
                steps.append(Step(verb, fields))
        except ConfigError as error:
            raise ConfigError(error.problem, line=number, field=error.field) from None
    raise ConfigError("the plan has no end", line=len(lines))


def backend_load(lib: str) -> Step:
    """Opens the backend library (a path on the device)."""
    return Step("backend-load", {"lib": lib})


def system_load(lib: str) -> Step:
    """Opens libQnnSystem, which reads the metadata that `execute` and `context_inspect` need."""
    return Step("system-load", {"lib": lib})


def device_create(*, soc: int | None = None, arch: int | None = None) -> Step:
    """Creates the device, for a SoC model id or HTP arch if one is given."""
    return Step("device-create", _given(soc=soc, arch=arch))


def context_inspect(file: str, *, context: int | None = None, max_bytes: int | None = None) -> Step:
    """Reports the metadata of a context binary."""
    return Step("context-inspect", _given(context=context, file=file, max_bytes=max_bytes))


def context_load(context: int, file: str, *, max_bytes: int | None = None) -> Step:
    """Makes a context from a binary; a file above `max_bytes` is not read."""
    return Step("context-load", _given(context=context, file=file, max_bytes=max_bytes))


def execute(
    context: int,
    *,
    graph: int = 0,
    inputs: Iterable[str] = (),
    expected: Iterable[str | None] = (),
    saved: Iterable[str | None] = (),
    tolerance: float = 0.0,
    repeat: int = 1,
) -> Step:
    """Executes a graph `repeat` times with inputs from files.

    Every run's outputs are compared with the files in `expected` (None: not this one): elements
    may differ by `tolerance`, in the unit of the tensor's raw values. `saved` names files for the
    last run's outputs. Raises ConfigError for a tolerance that is negative or no number.
    """
    fields = _given(context=context, graph=graph)
    for prefix, files in (("input", inputs), ("expect", expected), ("save", saved)):
        for index, file in enumerate(files):
            if file is not None:
                fields[f"{prefix}.{index}"] = file
    return Step("execute", fields | {"tolerance": f"{tolerance:.17g}", "repeat": str(repeat)})


def context_free(context: int) -> Step:
    """Frees a context if it is loaded."""
    return Step("context-free", _given(context=context))


def _given(**values: object) -> dict[str, str]:
    return {key: str(value) for key, value in values.items() if value is not None}


def _rule_name(key: str) -> str:
    match = _NUMBERED_KEY.fullmatch(key)
    return match[1] if match and int(match[2]) < MAX_TENSORS else key


def _check_value(verb: str, key: str, kind: Kind | None, value: str) -> None:
    if kind is None or key.endswith("."):
        raise ConfigError(f"{verb} has no field {key!r}", field=key, choices=_VERBS[verb])
    try:
        encoded = value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ConfigError(f"{value!r} has no UTF-8 form", field=key) from None
    if not encoded or b"\0" in encoded:
        raise ConfigError(f"{value!r} is empty or holds a NUL", field=key)
    fits = {"text": True, "number": _NUMBER.fullmatch(value), "real": _is_real(value)}
    if not fits[kind]:
        raise ConfigError(f"{value!r} is not a {kind}", field=key)


def _is_real(value: str) -> bool:
    return bool(_REAL.fullmatch(value)) and float(value) < 1e300


def _line(verb: str, fields: Mapping[str, str]) -> str:
    parts = (f"{key}={_quote(value)}" for key, value in fields.items())
    return " ".join((verb, *parts))


def _quote(value: str) -> str:
    return quote_from_bytes(value.encode("utf-8", "surrogateescape"), safe=_VISIBLE)


def _parse_fields(parts: Iterable[str]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals or key in fields or _BROKEN_ESCAPE.search(value):
            raise ConfigError(f"not a field, or given twice: {part[:80]!r}")
        fields[key] = unquote_to_bytes(value).decode("utf-8", "surrogateescape")
    return fields


def _settings(fields: Mapping[str, str]) -> Settings:
    values: dict[str, str | int] = {}
    for key, value in fields.items():
        if key in ("deadline_ms", "linger_ms", "max_log_bytes") and _NUMBER.fullmatch(value):
            values[key] = int(value)
        elif key in ("log_level", "memory"):
            values[key] = value
        else:
            raise ConfigError(f"no setting {key}={value!r}", field=key)
    return Settings(**values)  # type: ignore[arg-type]
