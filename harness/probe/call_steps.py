"""Steps that call one function of QNN's interface with arguments of one's own choice (pure).

For what no other step does: building a graph by hand, and calling a function wrongly to see what
it answers. The arguments are expressions of native/call.c.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from harness.ground.errors import ConfigError
from harness.probe.plan import Step, given, numbered

# Places in the table that QnnInterface_getProviders gives. It is append-only: these are the same
# in all libraries with core API 2 (checked with QNN 2.47.0 to 2.51.0).
_NAMES: Final = (  # noqa: SIM905
    "QnnProperty_hasCapability QnnBackend_create QnnBackend_setConfig "
    "QnnBackend_getApiVersion QnnBackend_getBuildId QnnBackend_registerOpPackage "
    "QnnBackend_getSupportedOperations QnnBackend_validateOpConfig QnnBackend_free "
    "QnnContext_create QnnContext_setConfig QnnContext_getBinarySize "
    "QnnContext_getBinary QnnContext_createFromBinary QnnContext_free QnnGraph_create "
    "QnnGraph_createSubgraph QnnGraph_setConfig QnnGraph_addNode QnnGraph_finalize "
    "QnnGraph_retrieve QnnGraph_execute QnnGraph_executeAsync "
    "QnnTensor_createContextTensor QnnTensor_createGraphTensor QnnLog_create "
    "QnnLog_setLogLevel QnnLog_free QnnProfile_create QnnProfile_setConfig "
    "QnnProfile_getEvents QnnProfile_getSubEvents QnnProfile_getEventData "
    "QnnProfile_getExtendedEventData QnnProfile_free QnnMem_register QnnMem_deRegister "
    "QnnDevice_getPlatformInfo QnnDevice_freePlatformInfo QnnDevice_getInfrastructure "
    "QnnDevice_create QnnDevice_setConfig QnnDevice_getInfo QnnDevice_free "
    "QnnSignal_create QnnSignal_setConfig QnnSignal_trigger QnnSignal_free "
    "QnnError_getMessage QnnError_getVerboseMessage QnnError_freeVerboseMessage "
    "QnnGraph_prepareExecutionEnvironment QnnGraph_releaseExecutionEnvironment "
    "QnnGraph_getProperty QnnContext_validateBinary "
    "QnnContext_createFromBinaryWithSignal QnnContext_createFromBinaryListAsync "
    "QnnTensor_updateGraphTensors QnnTensor_updateContextTensors"
).split()
_SYSTEM_NAMES: Final = (
    "QnnSystemContext_create",
    "QnnSystemContext_getBinaryInfo",
    "QnnSystemContext_getMetaData",
    "QnnSystemContext_free",
)
SLOTS: Final = MappingProxyType(
    {name: at for names in (_NAMES, _SYSTEM_NAMES) for at, name in enumerate(names)}
)
"""Where each function stands in its table."""

FLOAT32: Final = 0x0232
APP_WRITE, APP_READ, STATIC = 0, 1, 4
_UNDEFINED: Final = 0x7FFFFFFF

Argument = str | int


def call(
    api: str,
    *arguments: Argument,
    value: str | None = None,
    file: str | None = None,
    save: str | None = None,
) -> Step:
    """Calls a function by its name, such as QnnGraph_create.

    `value` is a structure that goes by value, behind the first argument; `file` is what `@file` and
    `#file` stand for. With `save` the bytes that the variables `data` and `size` name are written
    there afterwards. Raises ConfigError for a function that is not in `SLOTS`.
    """
    if api not in SLOTS:
        raise ConfigError(f"no function {api!r}", field="api", choices=SLOTS)
    system = "yes" if api in _SYSTEM_NAMES else None
    fields = given(api=api, slot=SLOTS[api], value=value, file=file, save=save, system=system)
    return Step("call", fields | numbered("arg", arguments))


def cells(words: Sequence[int]) -> str:
    """A pointer to numbers of 32 bits."""
    padded = [*words, *([0] * (len(words) % 2))]
    pairs = zip(padded[::2], padded[1::2], strict=True)
    return f"[{' '.join(str(low | high << 32) for low, high in pairs)}]"


def tensor(
    name: str,
    kind: int,
    shape: Sequence[int] = (1, 8, 8, 4),
    *,
    number: Argument = 0,
    data: Argument = 0,
    size: int = 0,
    data_type: int = FLOAT32,
    memory: int = 0,
    rank: int | None = None,
) -> str:
    """A pointer to a Qnn_Tensor_t of version 1; `kind` is APP_WRITE, APP_READ or STATIC."""
    named = name if re.fullmatch(r"\d+", name) else f"'{name}'"
    rank = len(shape) if rank is None else rank
    unquantised = f"{_UNDEFINED | _UNDEFINED << 32} 0 0 0 0"
    behind = f"{rank} {cells(shape)} {memory} {data} {size} 0 0 0"
    return f"[1 {number} {named} {kind} {data_type} {unquantised} {behind}]"


def operation(
    kind: str,
    inputs: Argument,
    outputs: Argument,
    *,
    name: str = "node",
    package: str = "qti.aisw",
    counts: tuple[int, int] = (1, 1),
) -> str:
    """A Qnn_OpConfig_t of version 1 without parameters, for `value` of `call`."""
    return f"[1 '{name}' '{package}' '{kind}' 0 0 {counts[0]} {inputs} {counts[1]} {outputs}]"
