"""The table of messages of libraries and drivers that tell of a cause (`corpus.tsv`)."""

import csv
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from harness.diagnosis.error_chain import is_benign
from harness.diagnosis.explain_log import explain
from harness.diagnosis.log_reader import read_log

TABLE: Final = Path(__file__).with_name("corpus.tsv")
Role = Literal["known", "consequence", "benign", "nothing"]

# Names of drivers and libraries stand before a message in logs, or are put into it.
_CONTEXT_OF_ORIGIN: Final = {
    "kernel-fastrpc": ("qcom,fastrpc 32300000.remoteproc:glink-edge.fastrpcglink-apps-dsp: ", "x"),
    "kernel-remoteproc": ("qcom_q6v5_pas 32300000.remoteproc: ", "cdsp.mbn"),
    "kernel-oom": ("", "qnn-net-run"),
    "bionic": ("", "libQnnHtp.so"),
    "glibc": ("libQnnHtp.so: ", "libQnnHtp.so"),
    "windows": ("", "QnnHtp.dll"),
}


@dataclass(frozen=True)
class Message:
    """A message's pattern, its origins (several are divided by +), its role and its cause.

    `role`: `known` states a cause by itself, `consequence` follows from one of several, `benign`
    is no failure, `nothing` has no cause and no row in the table. `cause` is a rule's id.
    """

    pattern: str
    origin: str
    role: Role = "nothing"
    cause: str = ""

    @property
    def sample(self) -> str:
        """A line of a log with this message."""
        origin = self.origin.partition("+")[0]
        prefix, name = _CONTEXT_OF_ORIGIN.get(origin, ("", "some"))
        return prefix + sample_of(self.pattern).replace("some", name)


def sample_of(pattern: str) -> str:
    """A line that a pattern could have made."""
    values = {"%d": "7", "%x": "2f0", "%s": "some"}
    return re.sub(r"%[dxs]", lambda place: values[place[0]], pattern)


def corpus() -> list[Message]:
    """Return the messages of the table."""
    with TABLE.open(newline="", encoding="utf-8") as file:
        _, *rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
    return [Message(*row) for row in rows]  # type: ignore[arg-type]


def wrong_answers(messages: list[Message]) -> list[str]:
    """Return a line for each message that is explained otherwise than its role and cause say."""
    return [
        f"{message.pattern!r}: {' '.join(answer)}, not {message.role} {message.cause}".rstrip()
        for message in messages
        if (answer := _answer(message)) != (message.role, message.cause)
    ]


def _answer(message: Message) -> tuple[Role, str]:
    diagnoses = explain(read_log(io.BytesIO(message.sample.encode())).lines).diagnoses
    if not diagnoses:
        return ("benign" if is_benign(message.sample) else "nothing"), ""
    role: Role = "consequence" if diagnoses[0].confidence == "possible" else "known"
    return role, diagnoses[0].id
