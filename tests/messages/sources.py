"""Takes messages of errors and warnings out of sources: the texts in calls that log them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.messages.patterns import pattern_of


@dataclass(frozen=True)
class Source:
    """Where sources log: `paths` of files in a snapshot, `calls` that log an error or a warning.

    `streamed`: all texts of a call are one message, with other things between them; else the first.
    """

    origin: str
    repository: str
    paths: str
    calls: str
    streamed: bool = False


_KERNEL: Final = (
    r"\b(?:dev_(?:err|warn|crit)(?:_probe|_ratelimited|_once)?|pr_(?:err|warn|crit)\w*|panic"
    r"|WARN(?:_ONCE)?|NL_SET_ERR\w*)\s*\("
)
SOURCES: Final = (
    Source(
        "fastrpc",
        "qualcomm/fastrpc",
        r"(?:src|inc)/.*\.[ch]$",
        r"\b(?:FARF\((?:RUNTIME_RPC_)?(?:ERROR|CRITICAL|FATAL)\b"
        r"|VERIFY_[EW]PRINTF\(|VERIFYC?M?\(|LOGE\()",
    ),
    Source("kernel-fastrpc", "linux", r"drivers/misc/fastrpc\.c$", _KERNEL),
    Source(
        "kernel-remoteproc",
        "linux",
        r"drivers/(?:remoteproc/(?:remoteproc_\w+|qcom_\w+)|soc/qcom/mdt_loader|firmware/qcom/\w+"
        r"|base/firmware_loader/\w+|soc/qcom/(?:smem|smp2p|pdr_\w+|qcom_\w+))\.c$",
        _KERNEL,
    ),
    Source(
        "kernel-glink",
        "linux",
        r"drivers/(?:rpmsg/\w+|soc/qcom/(?:apr|rpm\w*)|dma-buf/\w+|dma-buf/heaps/\w+"
        r"|iommu/arm/arm-smmu/\w+)\.c$",
        _KERNEL,
    ),
    Source("kernel-oom", "linux", r"mm/oom_kill\.c$", _KERNEL),
    Source(
        "ggml-hexagon",
        "ggml-org/ggml",
        r"src/ggml-hexagon/[^/]+\.(?:cpp|h)$",
        r"\bGGML_(?:LOG_(?:ERROR|WARN)|ABORT)\s*\(",
    ),
    Source(
        "executorch",
        "pytorch/executorch",
        r"backends/qualcomm/(?:runtime|aot)/.*\.(?:cpp|cc|h)$",
        r"\b(?:QNN_EXECUTORCH_LOG_(?:ERROR|WARN)|QNN_EXECUTORCH_LOG"
        r"|ET_LOG\(\s*(?:Error|Fatal)|ET_CHECK\w*)\s*[(,]",
    ),
    Source(
        "executorch-core",
        "pytorch/executorch",
        r"(?:runtime/(?:executor|core|backend|platform)|extension/(?:module|data_loader))"
        r"/[^/]+\.(?:cpp|h)$",
        r"\b(?:ET_LOG\(\s*(?:Error|Fatal)|ET_CHECK\w*)\s*[(,]",
    ),
    Source(
        "litert",
        "google-ai-edge/LiteRT",
        r"litert/vendors/qualcomm/.*\.(?:cc|h)$",
        r"\b(?:LITERT_LOG\(\s*LITERT_(?:ERROR|WARNING|FATAL)|QNN_LOG_(?:ERROR|WARNING)\("
        r"|(?:litert::)?(?:Unexpected|Error|ErrorStatusBuilder)\()",
        True,
    ),
    Source(
        "litert-core",
        "google-ai-edge/LiteRT",
        r"litert/(?:runtime|core|cc|compiler)/.*\.(?:cc|h)$",
        r"\b(?:LITERT_LOG\(\s*LITERT_(?:ERROR|WARNING|FATAL)|(?:litert::)?(?:Unexpected|Error)\()",
        True,
    ),
    Source(
        "ort-qnn",
        "onnxruntime/onnxruntime-qnn",
        r"onnxruntime/core/providers/qnn/.*\.(?:cc|h)$",
        r"\b(?:ORT_CXX_LOG\w*\([^,;]{1,80},\s*(?:Ort\w*::)?ORT_LOGGING_LEVEL_(?:ERROR|WARNING|FATAL)"
        r"|MAKE_(?:EP_)?FAIL\(|MAKE_STATUS\(|ORT_(?:CXX_)?API_THROW\(|ORT_(?:CXX_)?THROW\w*\("
        r"|RETURN_IF(?:_NOT|_ERROR)?\(|ORT_(?:CXX_)?ENFORCE\w*\(|ORT_(?:CXX_)?RETURN_IF\w*\()",
        True,
    ),
    Source(
        "bionic",
        "aosp-mirror/platform_bionic",
        r"linker/linker\w*\.cpp$",
        r"\b(?:DL_(?:OPEN_)?ERR(?:_AND_LOG)?|DL_WARN\w*|async_safe_fatal|add_dlwarning|__linker_error)"
        r"\s*\(",
    ),
    Source(
        "glibc",
        "bminor/glibc",
        r"elf/(?:dl-|rtld|get-dynamic)[\w.-]*\.[ch]$",
        r"\b(?:_dl_signal_c?error|_dl_exception_create\w*|_dl_fatal_printf|_dl_error_printf|lose|N_)\s*\(",
    ),
)

_TEXT: Final = re.compile(r'L?"((?:[^"\\\n]|\\.)*)"')
_ESCAPES: Final = {"n": " ", "t": " ", '"': '"', "\\": "\\", "'": "'"}
_MAX_CALL: Final = 3_000


def messages_of(source: Source, text: str) -> Iterator[str]:
    """The patterns of the messages that a file's calls log."""
    for found in re.finditer(source.calls, text):
        message = _message(_call(text, found.start()), source.streamed)
        if message.count(" ") >= 1 and any(map(str.isalpha, message)):
            yield pattern_of(message)


def _call(text: str, start: int) -> str:
    """A call with all that is streamed into it, to the semicolon behind it or its end."""
    depth, at, end = 0, text.index("(", start), min(len(text), start + _MAX_CALL)
    while at < end:
        if quoted := _TEXT.match(text, at):
            at = quoted.end()
            continue
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if (depth <= 0 and text[at] == ";") or depth < 0:
            break
        at += 1
    return text[start:at]


def _message(call: str, streamed: bool) -> str:
    parts: list[str] = []
    before = 0
    for found in _TEXT.finditer(call):
        between = call[before : found.start()].strip()
        if parts and re.sub(r"[\s\\]|PRI\w+", "", between):
            if not streamed:
                break
            # what stands between two texts of a stream is something put in
            if re.sub(r"[\s\\+<,]|std::string\(|\.c_str\(\)|\)", "", between):
                parts.append("%s")
        parts += ["%d"] if parts and "PRI" in between else []
        parts.append(re.sub(r"\\(.)", lambda one: _ESCAPES.get(one[1], " "), found[1]))
        before = found.end()
    return "".join(parts)
