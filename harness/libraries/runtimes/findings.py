"""What preflight can find, as data: a code each, how bad it is, and where people met it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

Severity = Literal["error", "warning", "info"]
"""error: it will not work; warning: it may not; info: could not be told, or harmless here."""

SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warning", "info")

_ORT = "https://github.com/microsoft/onnxruntime/issues"
_OQ = "https://github.com/onnxruntime/onnxruntime-qnn/issues"
_ET = "https://github.com/pytorch/executorch/issues"
_GENIE = "https://github.com/qualcomm/GenieX/issues"
_APPS = "https://github.com/qualcomm/ai-hub-apps/issues"


@dataclass(frozen=True)
class Code:
    """One kind of finding: its usual severity, what it means, and a public thread if there is."""

    name: str
    severity: Severity
    meaning: str
    thread: str | None = None


_CODES: Final = (
    Code("sdk-mix", "error", "a library is of another SDK build than the backend", f"{_ET}/8762"),
    Code("sdk-unknown", "info", "a QNN library names no SDK build, so that it cannot be compared"),
    Code("version-label", "warning", "the libraries are not of the version they are said to be"),
    Code("library-twice", "error", "two files of the same kind, so that either may be loaded"),
    Code("backend-missing", "error", "the library of the backend is not there"),
    Code("system-missing", "warning", "libQnnSystem.so is not there"),
    Code("stub-missing", "error", "no stub for the device's HTP", f"{_ET}/16415"),
    Code("skel-missing", "error", "no skel for the device's HTP", f"{_APPS}/158"),
    Code("arch-label", "error", "a stub or skel is for another HTP than its name says"),
    Code("no-htp", "error", "the device's SoC has no HTP"),
    Code("soc-arch", "warning", "SoC and HTP arch of the device do not belong together"),
    Code("soc-unknown", "warning", "the SoC of the device is not in the table", f"{_ET}/16465"),
    Code("context-newer", "error", "compiled by a newer SDK than the runtime", f"{_APPS}/148"),
    Code("context-arch", "error", "the context is for another HTP", f"{_ET}/11100"),
    Code("context-soc", "warning", "the context is for another SoC with the same HTP"),
    Code(
        "context-floats",
        "warning",
        "the context has floats, and HTP v68 calculates with none",
        "https://github.com/onnxruntime/onnxruntime-qnn/pull/708",
    ),
    Code("emulator-floats", "warning", "a simulated DSP whose emulator has no floating point"),
    Code("context-vtcm", "error", "the context is for more VTCM than the SoC has", f"{_ET}/9084"),
    Code("context-memory", "error", "the context alone is larger than a protection domain"),
    Code("elf-damaged", "error", "not a library, cut off, or not readable"),
    Code("wrong-machine", "error", "for another processor than the target's", f"{_ORT}/22518"),
    Code("wrong-libc", "error", "an Android library on Linux, or the other way round"),
    Code("glibc-too-old", "error", "the library needs a newer glibc than the device has"),
    Code("android-api", "warning", "built for a newer Android than the device has"),
    Code("page-size", "error", "laid out for smaller memory pages", f"{_GENIE}/886"),
    Code("needed-missing", "error", "a needed library that nobody provides", f"{_ET}/5120"),
    Code("ort-too-old", "error", "the plug-in asks for a newer ORT API", f"{_OQ}/486"),
    Code("ort-too-new", "error", "ORT refuses a plug-in as old as this one", f"{_OQ}/564"),
    Code(
        "executorch-device",
        "error",
        "ExecuTorch configures the HTP as another QNN than this one wants it",
    ),
    Code("ort-unknown", "info", "there is a plug-in, and the version of ORT is not known"),
)

CODES: Final[Mapping[str, Code]] = MappingProxyType({code.name: code for code in _CODES})


@dataclass(frozen=True)
class Finding:
    """One thing that will, or may, go wrong.

    `files` are names inside the runtime, or of contexts, the one at fault first. `explanation`
    says what was found and what comes of it, `fix` what to do. `thread` is a public URL.
    """

    code: str
    severity: Severity
    files: tuple[str, ...]
    explanation: str
    fix: str
    thread: str | None

    @property
    def context(self) -> str | None:
        return self.files[0] if self.code.startswith("context-") else None

    def __str__(self) -> str:
        thread = f" ({self.thread})" if self.thread else ""
        return f"{self.severity} {self.code}: {self.explanation}. {self.fix}.{thread}"


def finding(
    code: str,
    files: tuple[str, ...],
    explanation: str,
    fix: str,
    *,
    severity: Severity | None = None,
) -> Finding:
    """A finding of a code of the table; `severity` where the case is not the usual one."""
    kind = CODES[code]
    return Finding(code, severity or kind.severity, files, explanation, fix, kind.thread)
