"""Comparisons of measurements, as in `steady_us > 1.2 * good`: parsed, never executed (pure)."""

from __future__ import annotations

import math
import operator
import re
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from harness.errors import ConfigError

MAX_CHARS: Final = 300
_MAX_DEPTH: Final = 30
_TOKEN = re.compile(
    r"\s*(?:(\d{1,15}(?:\.\d{1,15})?(?:e[+-]?\d{1,2})?)|([a-z_]\w*(?:\.\w+)*)|([<>]=?|[=!]=|[-+*/()]))",
    re.ASCII | re.IGNORECASE,
)
_COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_ARITHMETIC: Final[Mapping[str, Callable[[float, float], float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
_OF_MANY: Final[Mapping[str, Callable[[list[float]], float]]] = {
    "min": min,
    "max": max,
    "mean": statistics.fmean,
    "median": statistics.median,
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
    "count": lambda values: float(len(values)),
}

Lookup = Callable[[str], float]
Term = Callable[[Lookup], float]


class Unmeasured(Exception):
    """A figure that the comparison needs is not there, or cannot be computed."""


@dataclass(frozen=True)
class Comparison:
    """A parsed comparison. `good` on its right side stands for the left side's value when good."""

    text: str
    left: Term
    sign: str
    right: Term
    needs_good: bool

    def value(self, figures: Mapping[str, object]) -> float:
        """The left side of it. Raises Unmeasured."""
        return _finite(self.left, lambda name: figure(figures, name))

    def holds(self, figures: Mapping[str, object], good: float | None = None) -> bool:
        """Whether it holds for the figures of a run. Raises Unmeasured."""

        def lookup(name: str) -> float:
            if name != "good":
                return figure(figures, name)
            if good is None:
                raise Unmeasured("there is no good run to compare with")
            return good

        return _COMPARE[self.sign](self.value(figures), _finite(self.right, lookup))


def figure(figures: Mapping[str, object], path: str) -> float:
    """A figure by its dotted path, as in `rss_bytes.peak` or `load_us.median`.

    Of a list, the last part is one of min, max, mean, median, first, last, count; without one it
    is the median. Raises Unmeasured.
    """
    value: object = figures
    for part in path.split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list | tuple) and part in _OF_MANY:
            value = _of_many(value, part, path)
        else:
            raise Unmeasured(f"{path} was not measured")
    if isinstance(value, list | tuple):
        value = _of_many(value, "median", path)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unmeasured(f"{path} is not a number")
    return _float(value)


def parse_comparison(text: str) -> Comparison:
    """Reads `left SIGN right` of numbers, measurements, + - * / and parentheses.

    Raises ConfigError that says where it goes wrong.
    """
    if len(text) > MAX_CHARS:
        raise ConfigError(f"a comparison has at most {MAX_CHARS} characters")
    parser = _Parser(text)
    left = parser.sum(0)
    if parser.names & {"good"}:
        raise ConfigError(f"{text!r}: 'good' stands for the left side, so it goes to the right")
    if not parser.names:
        raise ConfigError(f"{text!r}: the left side names no measurement")
    sign = parser.take()
    if sign not in _COMPARE:
        raise ConfigError(f"{text!r}: {sign or 'the end'} is no comparison", choices=_COMPARE)
    right = parser.sum(0)
    if parser.peek():
        raise ConfigError(f"{text!r}: nothing may follow before {parser.peek()!r}")
    return Comparison(text, left, sign, right, "good" in parser.names)


class _Parser:
    """Recursive descent; depth and length are bounded."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.names: set[str] = set()
        self._tokens: list[str] = []
        position = 0
        while text[position:].strip():
            found = _TOKEN.match(text, position)
            if found is None:
                raise ConfigError(f"{text!r}: cannot be read from {text[position:].strip()!r} on")
            self._tokens.append(found[0].strip())
            position = found.end()

    def peek(self) -> str:
        return self._tokens[0] if self._tokens else ""

    def take(self) -> str:
        return self._tokens.pop(0) if self._tokens else ""

    def sum(self, depth: int) -> Term:
        term = self._product(depth)
        while self.peek() in ("+", "-"):
            term = _apply(_ARITHMETIC[self.take()], term, self._product(depth))
        return term

    def _product(self, depth: int) -> Term:
        term = self._atom(depth)
        while self.peek() in ("*", "/"):
            term = _apply(_ARITHMETIC[self.take()], term, self._atom(depth))
        return term

    def _atom(self, depth: int) -> Term:
        if depth > _MAX_DEPTH:
            raise ConfigError(f"{self.text!r}: nested too deep")
        token = self.take()
        if token == "-":
            inner = self._atom(depth + 1)
            return lambda lookup: -inner(lookup)
        if token == "(":
            inner = self.sum(depth + 1)
            if self.take() != ")":
                raise ConfigError(f"{self.text!r}: a parenthesis is not closed")
            return inner
        if token[:1].isdigit():
            number = float(token)
            return lambda _: number
        if token[:1].isalpha() or token[:1] == "_":
            self.names.add(token)
            return lambda lookup: lookup(token)
        where = f"before {token!r}" if token else "at the end"
        raise ConfigError(f"{self.text!r}: a number or a measurement is missing {where}")


def _apply(what: Callable[[float, float], float], left: Term, right: Term) -> Term:
    return lambda lookup: what(left(lookup), right(lookup))


def _finite(term: Term, lookup: Lookup) -> float:
    try:
        value = term(lookup)
    except ArithmeticError as error:
        raise Unmeasured(f"cannot be computed: {error}") from error
    if not math.isfinite(value):
        raise Unmeasured("cannot be computed: not a finite number")
    return value


def _of_many(values: list[object] | tuple[object, ...], how: str, path: str) -> float:
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if not numbers or len(numbers) < len(values):
        raise Unmeasured(f"{path} is not a list of numbers")
    return float(_OF_MANY[how]([_float(number) for number in numbers]))


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError as error:
        raise Unmeasured("a number is too large") from error
