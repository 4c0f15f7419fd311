"""Which libraries a process on a device needs, by backend, engine and HTP arch, as data.

Names are file names; folders differ from source to source. The source of a fact is a public page,
or what was seen: "opened" is what the dynamic loader opened while contexts were loaded and
executed (LD_DEBUG=files, QNN 2.47.0 and 2.51.0).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, get_args

from harness.ground.errors import ConfigError
from harness.ground.facts.backends import BACKENDS
from harness.ground.files.local_file import LocalFile
from harness.libraries.runtimes.runtime import Runtime

Driver = Literal["qnn", "ort-builtin", "ort-plugin", "executorch"]
"""What drives the backend: our probe, ORT with the EP built in or as plug-in, or a program."""

ENGINES: Final[tuple[Driver, ...]] = get_args(Driver)

_ALL_BACKENDS: Final = frozenset(BACKENDS)
_ALL_ENGINES: Final = frozenset(ENGINES)


class DeviceFile(NamedTuple):
    """One kind of file, and when it is needed.

    `pattern` is a regular expression for the whole file name; {arch} stands for the HTP arch.
    `when_preparing`: only for graphs that are composed on the device. `devices_only`: the
    simulator inside the backend for x86-64 does without.
    """

    pattern: str
    backends: Collection[str] = _ALL_BACKENDS
    engines: Collection[str] = _ALL_ENGINES
    when_preparing: bool = False
    devices_only: bool = False

    def matches(self, file_name: str, htp_arch: int | None) -> bool:
        """Whether a file is of this kind; of any arch where `htp_arch` is None."""
        arch = r"\d\d" if htp_arch is None else str(htp_arch)
        return re.fullmatch(self.pattern.replace("{arch}", arch), file_name, re.ASCII) is not None


DEVICE_FILES: Final = (
    # QAIRT docs, HTP and GPU backends: libraries to push
    DeviceFile(r"libQnnHtp\.so", ("htp",)),
    DeviceFile(r"libQnnHtpV{arch}Stub\.so", ("htp",), devices_only=True),
    DeviceFile(r"libQnnHtpV{arch}Skel\.so", ("htp",), devices_only=True),
    DeviceFile(r"libQnnGpu\.so", ("gpu",)),
    DeviceFile(r"libQnnCpu\.so", ("cpu",)),
    # not opened for contexts; x86-64 has its code in libQnnHtp.so
    DeviceFile(r"libQnnHtpPrepare\.so", ("htp",), when_preparing=True, devices_only=True),
    # opened: the probe reads the metadata of contexts with it
    DeviceFile(r"libQnnSystem\.so", engines=("qnn",)),
    # reads context binaries, which the CPU backend has none of:
    # https://onnxruntime.ai/docs/execution-providers/QNN-ExecutionProvider.html
    DeviceFile(r"libQnnSystem\.so", ("htp", "gpu"), _ALL_ENGINES - {"qnn"}),
    DeviceFile(r"libonnxruntime\.so(?:\.\d+)*", engines=("ort-builtin", "ort-plugin")),
    # registered by its path (github.com/onnxruntime/onnxruntime-qnn)
    DeviceFile(r"libonnxruntime_providers_qnn\.so", engines=("ort-plugin",)),
    # https://docs.pytorch.org/executorch/stable/backends-qualcomm.html
    DeviceFile(r"libqnn_executorch_backend\.so|qnn_executor_runner", engines=("executorch",)),
    # the C++ runtime: libc++_shared.so on Android (QAIRT docs), *.libs of manylinux wheels (opened)
    DeviceFile(r"lib(?:c\+\+(?:abi|_shared)?|unwind)(?:-[0-9a-f]{8})?\.so(?:\.\d+)*"),
)


def narrowed(
    runtime: Runtime,
    backend: str,
    engine: str,
    htp_arch: int | None,
    *,
    online_prepare: bool = False,
    needed: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> Runtime:
    """The runtime with the files that a process needs on its device, in their order (pure).

    `htp_arch` is the 73 of v73; None where it is not known, which takes every stub and skel. On
    linux-x64 the simulator does without these. `needed` has for file names the other files that
    they want loaded (DT_NEEDED), which come along if the runtime has them. Raises ConfigError for a
    backend or engine that does not exist.
    """
    for text, choices, field in ((backend, BACKENDS, "backend"), (engine, ENGINES, "engine")):
        if text not in choices:
            raise ConfigError(f"unknown {field} {text[:80]!r}", field=field, choices=choices)
    kinds = [
        kind
        for kind in DEVICE_FILES
        if backend in kind.backends
        and engine in kind.engines
        and (online_prepare or not kind.when_preparing)
        and not (kind.devices_only and runtime.target == "linux-x64")
    ]
    chosen = {
        _file_name(file)
        for file in runtime.files
        if any(kind.matches(_file_name(file), htp_arch) for kind in kinds)
    }
    todo = list(chosen)
    while todo:
        new = set(needed.get(todo.pop(), ())) - chosen
        chosen |= new
        todo += new
    kept = tuple(file for file in runtime.files if _file_name(file) in chosen)
    return replace(runtime, files=kept)


def _file_name(file: LocalFile) -> str:
    return file.name.rsplit("/", 1)[-1]


def is_device_file(name: str) -> bool:
    """Whether a file is of use to any process on any device, by its name (pure)."""
    file_name = name.rsplit("/", 1)[-1]
    return any(kind.matches(file_name, None) for kind in DEVICE_FILES)
