"""What went wrong in a case, and where: the error of a record, and its signature (pure)."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictInt, model_validator

from harness.core.codes import describe

Outcome = Literal["passed", "failed", "crashed", "hung", "unsupported", "error", "skipped"]
MAX_MESSAGE_CHARS: Final = 16_000
MAX_SIGNATURE_CHARS: Final = 300

# In this order: each takes out what a later one would take apart. A placeholder holds nothing
# that any of them matches, and none matches right behind one, so that a second pass changes
# nothing.
_VARYING: Final = (
    (re.compile(r"(?<![\w<>])(?:/[\w.+@~%:-]+)+/?"), "<path>"),
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.I), "<uuid>"),
    (re.compile(r"\b0x[0-9a-f]+\b", re.I), "<hex>"),
    (re.compile(r"\b(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{8,}\b", re.I), "<hex>"),
    (re.compile(r"(?:(?<![\w>.)])[-+])?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?", re.I), "<n>"),
)
_SPACE: Final = re.compile(r"\s+")


def clean_text(text: object) -> object:
    """Text that UTF-8 can hold: halves of surrogate pairs become question marks."""
    if not isinstance(text, str) or text.isascii():
        return text
    return text.encode("utf-8", "replace").decode()


def named_text(text: object) -> object:
    """`clean_text` that databases can hold, too: zero, which PostgreSQL has not got, is U+FFFD."""
    cleaned = clean_text(text)
    return cleaned.replace("\0", "\ufffd") if isinstance(cleaned, str) else cleaned


RecordText = Annotated[str, BeforeValidator(named_text)]


class Part(BaseModel):
    """A part of a record: known keys only, never changed, every key written."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        serialize_by_alias=True,
        json_schema_serialization_defaults_required=True,
    )


Number = Annotated[StrictInt, Field(gt=-(1 << 64), lt=1 << 64)]
"""What an API answered, or a place in a plan: no more than 64 bits."""


class ChainLink(Part):
    """One thing that went wrong on the way to a failure.

    `source` tells whether the library logged it or the call returned it; `code` is null where
    nobody named a number. `symbol` and `component` explain the code.
    """

    code: Number | None = None
    hex: str | None = None
    symbol: RecordText | None = None
    component: str | None = None
    message: RecordText = ""
    source: Literal["log", "call"]


Confidence = Literal["known", "likely", "possible"]


class Diagnosis(Part):
    """What is known of this kind of failure: in words, what helps, and a public thread about it.

    `confidence` is how sure it is that the failure is of this kind: `known` (a line states it),
    `likely`, or `possible` (one of several causes).
    """

    id: RecordText
    confidence: Confidence
    words: RecordText
    fix: RecordText | None = None
    thread: RecordText | None = None

    @property
    def name(self) -> str:
        return f"{self.id} ({self.confidence})"

    def text(self) -> str:
        """One line for a person."""
        parts = (f"{self.name}: {self.words}", self.fix, self.thread)
        return "; ".join(part for part in parts if part)


class LoadedLibrary(Part):
    """A library that the process had loaded when it failed, and the file that the loader took.

    `build_id` is the linker's. `version` is the QNN that a library from outside of the runtime's
    folder names, `hides` the runtime's file that was not loaded because of it.
    """

    name: RecordText
    path: RecordText
    build_id: RecordText | None = None
    version: RecordText | None = None
    hides: RecordText | None = None

    def text(self) -> str:
        """One line for a person, and for the table of causes."""
        known = (self.version, self.build_id and f"build id {self.build_id}")
        told = ", ".join(part for part in known if part)
        hides = f" hides {self.hides}" if self.hides else ""
        return f"{self.name}: {self.path}" + (f" ({told})" if told else "") + hides


class OrtCode(Part):
    """What ONNX Runtime itself answered: an OrtErrorCode, which tells no more than the kind."""

    code: Number
    name: RecordText


class ErrorRecord(Part):
    """What went wrong, where: the first failed step.

    `code` is the number the API returned, null if the failure has none (a crash, a wrong output);
    `hex` is how logs print it. `step` counts the plan's steps from 0, `context` is the number of
    the context concerned. `message` is the library's own explanation. `chain` is all that went
    wrong on the way, in order, and `first_cause` where that began. `diagnosis` is the known kind of
    failure that this is one of, if it is. `libraries` are those of QNN, ORT and the drivers that
    were loaded when a call failed.

    Of a call of ONNX Runtime `code` is QNN's number in what was said, if there is one, `ort` what
    ORT returned, and `message` the whole chain of causes, the first one first.
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
        """Fills in what follows from the code; `symbol` is the library's, if it named one.

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
        """API, code and symbol of what failed, as far as they are known.

        A call that succeeded with wrong outputs has its API only: the message tells of those.
        """
        parts = (self.api,) if self.code == 0 else (self.api, self.code, self.symbol)
        return " ".join(str(part) for part in parts if part not in (None, ""))

    @property
    def began(self) -> str:
        first = self.first_cause.message.strip() if self.first_cause is not None else ""
        return (first or self.message.strip()).partition("\n")[0]

    def with_line(self, line: str) -> ErrorRecord:
        """This record with one more line in its message, which its signature leaves out."""
        return self.model_copy(update={"message": cut_message(f"{self.message}\n{line}".strip())})

    @model_validator(mode="after")
    def _hex_is_the_code(self) -> ErrorRecord:
        if self.hex is not None and (self.code is None or self.hex != hex(self.code)):
            raise ValueError(f"hex {self.hex} is not code {self.code}")
        return self


def cut_message(message: str) -> str:
    """A message as records hold it: at most 16,000 characters, cut in the middle."""
    if len(message) <= MAX_MESSAGE_CHARS:
        return message
    half = MAX_MESSAGE_CHARS // 2 - 20
    return f"{message[:half]}\n[... cut ...]\n{message[-half:]}"


def signature(api: str | None, code: int | None, message: str) -> str:
    """`api|code|message`, the same for two failures that differ only in what varies by chance.

    Numbers, addresses, hashes, UUIDs and absolute paths are taken out of the message; lines that
    then are equal count once. At most 300 characters of it are used. A missing part is "-".
    """
    return f"{api or '-'}|{'-' if code is None else code}|{without_varying_parts(message) or '-'}"


def signature_text(signature: str) -> str:
    """Return a signature as people read it: its parts, without those that are missing."""
    return " ".join(part for part in signature.split("|") if part != "-")


def without_varying_parts(message: str) -> str:
    """The message as it stands in a signature; applied twice it changes nothing more."""
    lines = (_without(line) for line in message[: 20 * MAX_SIGNATURE_CHARS].splitlines())
    return " / ".join(dict.fromkeys(line for line in lines if line))[:MAX_SIGNATURE_CHARS].rstrip()


def _without(line: str) -> str:
    for pattern, name in _VARYING:
        line = pattern.sub(name, line)
    return _SPACE.sub(" ", line).strip()
