"""What in any log tells of QNN at all, whatever fails: its programs, calls, numbers (data)."""

from __future__ import annotations

import re
from typing import Final

# Words of programs that use the NPU, in a line of theirs: such processes fail each on its own.
CLIENT: Final = re.compile(
    r"Qnn(?:Dsp|Htp|Gpu|Cpu|System|[A-Z][a-z]+_)|Qnn ExecuTorch|QNNExecution|QnnBackendManager"
    r"|ggml-hex|needed by .*lib[acs]dsprpc|(?i:litert|lite_rt|genie)"
)

# How frameworks speak of the calls that a rule may ask for.
CALLS: Final = tuple(
    (re.compile(pattern), api)
    for pattern, api in (
        (
            r"(?i)context from (?:context )?binary|(?:create from|validate) binary|EpContext model",
            "QnnContext_createFromBinary",
        ),
        (r"(?i)failed to create (?:qnn )?context\b", "QnnContext_createFromBinary"),
        (r"(?i)create (?:qnn )?device\b|device_?handle|device creation", "QnnDevice_create"),
        (r"(?i)backend_?handle|initialize backend", "QnnBackend_create"),
        (r"(?i)graph_? ?execut\w+|running QNN_", "QnnGraph_execute"),
    )
)
# A number without any of these may be anybody's: 1008 and 14001 are errors of other programs, too.
OURS: Final = re.compile(
    r"(?i)qnn|htp|hexagon|[acs]dsp|rpc|skel\b|stub\b|snapdragon|genie|qualcomm|adreno|0x8000|npu\b"
)
# What a run of this harness had found beforehand, as its summary says it.
FORESEEN: Final = re.compile(r"\bpreflight (?:error|warning) ([a-z][a-z0-9-]{2,40}): (.{1,300})")
CAME_TRUE: Final = "it came true, as the failure says"
API: Final = re.compile(r"\bQnn[A-Z][A-Za-z]{2,24}_[a-z][A-Za-z]{2,40}\b")
# What every program with TensorFlow Lite says, whether or not it wants the NPU.
ANYBODYS: Final = re.compile(r"TfLiteXNNPackDelegate")
