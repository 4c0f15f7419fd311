"""The error of a record, and its signature (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Final, Literal

from pydantic import Field, StrictInt, model_validator

from harness.core.error_codes import describe, same_code
from harness.core.json_record import Part, RecordText, clean_text, cut_message
from harness.probe.transcript import LoadedLibrary

Outcome = Literal["passed", "failed", "crashed", "hung", "unsupported", "error", "skipped"]
MAX_SIGNATURE_CHARS: Final = 300

# The order matters: each replaces text that a later one would split. No pattern matches in or right
# after a placeholder, so a second pass changes nothing.
_VARYING: Final = (
    (re.compile(r"(?<![\w<>])(?:/[\w.+@~%:-]+)+/?"), "<path>"),
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.I), "<uuid>"),
    (re.compile(r"\b0x[0-9a-f]+\b", re.I), "<hex>"),
    (re.compile(r"\b(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{8,}\b", re.I), "<hex>"),
    (re.compile(r"(?:(?<![\w>.)])[-+])?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?", re.I), "<n>"),
)


Number = Annotated[StrictInt, Field(gt=-(1 << 64), lt=1 << 64)]
"""A return code of an API, or an index in a plan, of at most 64 bits."""


class ChainLink(Part):
    """One cause in the chain of a failure.

    `source` tells whether the library logged it or the call returned it; `code` is null if there
    is no number. `symbol` and `component` explain the code.
    """

    code: Number | None = None
    hex: str | None = None
    symbol: RecordText | None = None
    component: str | None = None
    message: RecordText = ""
    source: Literal["log", "call"]


Confidence = Literal["known", "likely", "possible"]


FORETOLD: Final = "as preflight warned, "
"""Precedes the words of a diagnosis that preflight predicted for the case."""


class Diagnosis(Part):
    """A known kind of failure: its description, a fix, and a public thread about it.

    `confidence` is `known` (a line states it), `likely`, or `possible` (one of several causes).
    """

    id: RecordText
    confidence: Confidence
    words: RecordText
    fix: RecordText | None = None
    thread: RecordText | None = None

    @property
    def name(self) -> str:
        return f"{self.id} ({self.confidence})"

    def lines(self) -> Iterator[str]:
        yield f"{self.name}: {self.words}"
        if self.fix:
            yield f"what helps: {self.fix}"
        if self.thread:
            yield f"see {self.thread}"


class OrtCode(Part):
    """The OrtErrorCode that ONNX Runtime returned, which names only the kind of error."""

    code: Number
    name: RecordText


class ErrorRecord(Part):
    """The error of the first failed step.

    `code` is the number the API returned, null if the failure has none (a crash, a wrong output);
    `hex` is how logs print it. `symbol` is its name in the library's headers, or the code of an
    error of the harness itself (`device-timeout`). `step` counts the plan's steps from 0,
    `context` is the number of the context concerned. `message` is the library's own explanation.
    `chain` are all causes in order, and `first_cause` is the first of them. `diagnosis` is the
    known kind of failure, if it is one. `libraries` are those of QNN, ORT and the drivers that
    were loaded when a call failed.

    For a call of ONNX Runtime `code` is QNN's code in the messages, if there is one, `ort` the code
    that ORT returned, and `message` the whole chain of causes, the first one first.
    """

    api: RecordText | None = None
    code: Number | None = None
    hex: str | None = None
    symbol: RecordText | None = None
    component: str | None = None
    message: RecordText = ""
    step: Number | None = None
    context: Number | None = None
    ort: OrtCode | None = None
    signature: RecordText
    chain: tuple[ChainLink, ...] = ()
    first_cause: ChainLink | None = None
    diagnosis: Diagnosis | None = None
    libraries: tuple[LoadedLibrary, ...] = ()

    @classmethod
    def of(
        cls,
        *,
        message: str,
        api: str | None = None,
        code: int | None = None,
        symbol: str | None = None,
        step: int | None = None,
        context: int | None = None,
        ort: OrtCode | None = None,
        chain: tuple[ChainLink, ...] = (),
    ) -> ErrorRecord:
        """Return a record with the fields that follow from the code; `symbol` is the library's.

        Messages longer than 16,000 characters are cut in the middle.
        """
        info = None if code is None else describe(code, api=api)
        text = cut_message(str(clean_text(message)))
        return cls(
            api=api,
            code=code,
            hex=info.hex if info else None,
            symbol=symbol or (info.symbol if info else None),
            component=info.component if info else None,
            message=text,
            step=step,
            context=context,
            ort=ort,
            signature=signature(api, code, text),
            chain=chain,
            first_cause=chain[0] if chain else None,
        )

    @property
    def call(self) -> str:
        """API, code and symbol of the failed call, as far as they are known; empty without a call.

        For a call that succeeded with wrong outputs it is the API only.
        """
        if self.api is None and self.code is None:
            return ""
        parts = (self.api,) if self.code == 0 else (self.api, self.code, self.symbol)
        return " ".join(str(part) for part in parts if part not in (None, ""))

    @property
    def headline(self) -> str:
        first = self.first_cause.message.strip() if self.first_cause is not None else ""
        return (first or self.message.strip()).partition("\n")[0]

    @property
    def summary(self) -> str:
        """The failed call and the headline."""
        return ": ".join(filter(None, (self.call, self.headline)))

    def has_code(self, code: int | None) -> bool:
        """Return whether this is its code, or that of ONNX Runtime if there is none of QNN."""
        returned = self.ort is not None and self.code is None and self.ort.code == code
        return returned or same_code(self.code, code)

    def with_line(self, line: str) -> ErrorRecord:
        """Return this record with one more line in its message, but not in its signature."""
        return self.model_copy(update={"message": cut_message(f"{self.message}\n{line}".strip())})

    @model_validator(mode="after")
    def _hex_is_the_code(self) -> ErrorRecord:
        if self.hex is not None and (self.code is None or self.hex != hex(self.code)):
            raise ValueError(f"hex {self.hex} is not code {self.code}")
        return self


def signature(api: str | None, code: int | None, message: str) -> str:
    """Return `api|code|message`, equal for failures that differ only in varying parts.

    Numbers, addresses, hashes, UUIDs and absolute paths of the message are replaced; lines that
    are equal then count once. At most 300 characters of it are used. A missing part is "-".
    """
    return f"{api or '-'}|{'-' if code is None else code}|{without_varying_parts(message) or '-'}"


def signature_text(signature: str) -> str:
    """Return a signature as people read it: its parts, without those that are missing."""
    return " ".join(part for part in signature.split("|") if part != "-")


def without_varying_parts(message: str) -> str:
    """Return the message as in a signature. Idempotent."""
    lines: dict[str, None] = {}
    for line in message[: 20 * MAX_SIGNATURE_CHARS].splitlines():
        for pattern, name in _VARYING:
            line = pattern.sub(name, line)
        lines[" ".join(line.split())] = None
    return " / ".join(filter(None, lines))[:MAX_SIGNATURE_CHARS].rstrip()
