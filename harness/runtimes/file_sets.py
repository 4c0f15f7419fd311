"""Which files of an onnxruntime-qnn wheel go where, as data with a reason for each.

"Not opened": what the dynamic loader opened while contexts were compiled, loaded and executed,
as LD_DEBUG=files shows it, with the wheels of QNN 2.47.0 and 2.51.0. The names on a device are
those of the wheel, because the libraries look for their C++ runtime in $ORIGIN/../*.libs.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Literal

Use = Literal["device", "host", "none"]
"""device: deployed (and on the host); host: for compiling there; none: not even unpacked."""

LIBRARY_FOLDER: Final = "onnxruntime_qnn"
RUNTIME_FOLDER: Final = "onnxruntime_qnn.libs"
BUILD_INFO: Final = f"{LIBRARY_FOLDER}/build_and_package_info.py"


@dataclass(frozen=True)
class FileRule:
    """What becomes of the files whose name in the wheel matches; the first match decides."""

    pattern: str
    use: Use
    reason: str


WHEEL_RULES: Final = (
    FileRule(BUILD_INFO, "host", "names the QNN version"),
    FileRule(
        "*/libonnxruntime_providers_qnn.so",
        "host",
        "ORT's plug-in: makes contexts on the host; a device gets it once ORT runs there",
    ),
    FileRule(
        "*/libHtpPrepare.so",
        "none",
        "not opened: on x86-64 libQnnHtp.so holds the same code, and both have 100 MB",
    ),
    FileRule(
        "*/libQnnHtpPrepare.so",
        "none",
        "for preparing graphs on the device (QAIRT docs, HTP backend: online prepare); here they "
        "come as context binaries",
    ),
    FileRule("*/libGenie.so", "none", "runs language models, not opened"),
    FileRule("*/libDlModelToolsPy*.so", "none", "an extension of Python, not opened"),
    FileRule("*/libQnnSaver.so", "none", "a backend that records calls, not opened"),
    FileRule("*/libQnnIr.so", "none", "a backend that writes DLC files, not opened"),
    FileRule("*/libQnnHtpNetRunExtensions.so", "none", "for qnn-net-run's config file"),
    FileRule(f"{LIBRARY_FOLDER}/*.so", "device", "backends, stubs, skels, system library"),
    FileRule(f"{RUNTIME_FOLDER}/*", "device", "the C++ runtime, found by $ORIGIN/../*.libs"),
    FileRule("*", "none", "licences, notices, Python"),
)


def use_of(name: str) -> Use:
    """What becomes of a file of the wheel (pure)."""
    return next(rule.use for rule in WHEEL_RULES if fnmatchcase(name, rule.pattern))
