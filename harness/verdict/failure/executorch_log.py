"""What ExecuTorch's QNN backend logs, read: which call failed first, and with which code (pure).

ExecuTorch answers with an error of its own that tells next to nothing (1, Internal). QNN's code
stands in a line of its log. The lines are those of ExecuTorch 1.5.1; most are in the logs of
pytorch/executorch#14985, #6820 and #18862, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from harness.probe.transcript import LogLine

_NUMBER: Final = r"(\d{1,9})"

_CALLS: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(pattern.replace("<n>", _NUMBER)), api)
    for pattern, api in (
        (r"Failed to create log_handle\b.*\berror=<n>", "QnnLog_create"),
        (r"Failed to create backend_handle\b.*\berror=<n>", "QnnBackend_create"),
        (r"Failed to create device_handle\b.*\berror=<n>", "QnnDevice_create"),
        (r"HTP backend (?:perf_infrastructure|unable).*\bError <n>", "QnnDevice_getInfrastructure"),
        (
            r"Failed to interpret QNN context binary\. Error code <n>",
            "QnnSystemContext_getBinaryInfo",
        ),
        (r"Can't create context from binary\. Error <n>", "QnnContext_createFromBinary"),
        (r"Can't create dlc from binary\. Error <n>", "QnnSystemDlc_createFromBinary"),
        (r"Can't compose graph from dlc\. Error <n>", "QnnSystemDlc_composeGraphs"),
        (r"Can't retrieve graph .* from context\. Error <n>", "QnnGraph_retrieve"),
        (r"Failed to retrieve graph .*\. Error <n>", "QnnGraph_retrieve"),
        (r"Failed to finalize Qnn Graph with error: <n>", "QnnGraph_finalize"),
        (r"Tensor .* is failed to register shared memory\. Error <n>", "QnnMem_register"),
        (r"qnn_graph_execute failed\. Error <n>", "QnnGraph_execute"),
    )
)
_NOT_READ: Final = "Failed to interpret QNN context binary"
_TRIED_AS_DLC: Final = "Can't create dlc from binary"


@dataclass(frozen=True)
class FailedCall:
    """A call of QNN that ExecuTorch says failed, and the code it returned."""

    api: str
    code: int


def first_failed_call(lines: Iterable[str]) -> FailedCall | None:
    """The call that failed first, None if the log names none; `lines` as `causal` leaves them."""
    for line in lines:
        for pattern, api in _CALLS:
            if found := pattern.search(line):
                return FailedCall(api, int(found[1]))
    return None


def causal(logs: Sequence[LogLine]) -> list[LogLine]:
    """The log of one delegate without what is no cause.

    What cannot be read as a context is tried as a DLC next. If it is no DLC, that ends with 1002,
    whose cause is the 30010 before it, logged as a warning. If it is one, nothing went wrong
    (pytorch/executorch#21804).
    """
    unread = next((at for at, line in enumerate(logs) if _NOT_READ in line.text), None)
    if unread is None:
        return list(logs)
    behind = [line for line in logs[unread + 1 :] if _TRIED_AS_DLC not in line.text]
    is_dlc = len(behind) == len(logs) - unread - 1
    cause = [] if is_dlc else [replace(logs[unread], level="error")]
    return [*logs[:unread], *cause, *behind]
