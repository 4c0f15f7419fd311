"""The atlas of error codes: for each code, the smallest plan that makes a real library give it.

`trigger` describes the misuse. Every plan begins with an open backend and device, unless `opens` is
false, and its last step is the one that returns the code. All was measured with QNN 2.47.0 to
2.51.0 for x86-64; `versions` restricts the versions, and `otherwise` is the answer of the others
(None: no error).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from harness import Model, steps

APP_READ, APP_WRITE, STATIC = steps.APP_READ, steps.APP_WRITE, steps.STATIC
Step, call, operation, tensor = steps.Step, steps.call, steps.operation, steps.tensor

_LARGE = (1, 512, 512, 64)
_BYTES = 8 * 8 * 4 * 4
_NONSENSE = 12345  # no handle

_CONTEXT = call("QnnContext_create", "backend", "device", 0, "&ctx")
_GRAPH = call("QnnGraph_create", "ctx", "'g'", 0, "&graph")
_INPUT = call("QnnTensor_createGraphTensor", "graph", "tin=" + tensor("in", APP_WRITE))
_OUTPUT = call("QnnTensor_createGraphTensor", "graph", "tout=" + tensor("out", APP_READ))
_NODE = call("QnnGraph_addNode", "graph", value=operation("Relu", "tin", "tout"))
_FINALIZE = call("QnnGraph_finalize", "graph", 0, 0)
_NEW = (_CONTEXT, _GRAPH)
_BUILT = (*_NEW, _INPUT, _OUTPUT, _NODE)
_READY = (*_BUILT, _FINALIZE)
_SIZE = call("QnnContext_getBinarySize", "ctx", "&size")
_SAVED = (_SIZE, call("QnnContext_getBinary", "ctx", "data=?0x100000", "size", "&done"))
_BINARY = (*_READY, *_SAVED)
_SYSTEM = call("QnnSystemContext_create", "&system")

_GOOD_INPUT = tensor("in", APP_WRITE, number="tin.1", data=f"?{_BYTES}", size=_BYTES)
_GOOD_OUTPUT = tensor("out", APP_READ, number="tout.1", data=f"?{_BYTES}", size=_BYTES)


@dataclass(frozen=True)
class Provocation:
    """A way to get a code from a backend: the misuse in words, and its steps."""

    code: int
    backend: str
    trigger: str
    steps: tuple[Step, ...]
    opens: bool = True
    versions: str = ">=2.47"
    otherwise: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Its part of the case's name."""
        return str(self.code)


def _execute(
    inputs: str = _GOOD_INPUT, count: int = 1, profile: int = 0, signal: int = 0, outputs: int = 1
) -> Step:
    arguments = (inputs, count, _GOOD_OUTPUT if outputs else 0, outputs)
    return call("QnnGraph_execute", "graph", *arguments, profile, signal)


def _load(data: str = "data", size: str = "size", config: str = "0") -> Step:
    arguments = ("backend", "device", config, data, size, "&other", 0)
    return call("QnnContext_createFromBinary", *arguments)


def _validate(kind: str, inputs: int = 1) -> Step:
    value = operation(kind, tensor("in", APP_WRITE), tensor("out", APP_READ), counts=(inputs, 1))
    return call("QnnBackend_validateOpConfig", "backend", value=value)


def _both(code: int, trigger: str, *steps: Step, opens: bool = True) -> list[Provocation]:
    return [Provocation(code, backend, trigger, steps, opens) for backend in ("htp", "gpu")]


def _htp(
    code: int, trigger: str, *steps: Step, versions: str = ">=2.47", otherwise: int | None = None
) -> list[Provocation]:
    return [Provocation(code, "htp", trigger, steps, versions=versions, otherwise=otherwise)]


def _damage(offset: int) -> Step:
    """Overwrite 8 bytes of the binary with its size."""
    return call("QnnContext_getBinarySize", "ctx", f"data+{offset}")


def _gpu(
    code: int, trigger: str, *steps: Step, opens: bool = True, versions: str = ">=2.47"
) -> list[Provocation]:
    return [Provocation(code, "gpu", trigger, steps, opens, versions)]


PROVOCATIONS: tuple[Provocation, ...] = (
    *_both(1000, "a signal is created", call("QnnSignal_create", "backend", 0, "&signal")),
    *_gpu(1002, "a context is loaded from zeros", _load("?0x1000", "0x1000")),
    *_htp(
        1002,
        "contexts with 128 MB of inputs and outputs each are loaded, 30 of them",
        *_NEW,
        call("QnnTensor_createGraphTensor", "graph", "tin=" + tensor("in", APP_WRITE, _LARGE)),
        call("QnnTensor_createGraphTensor", "graph", "tout=" + tensor("out", APP_READ, _LARGE)),
        _NODE,
        _FINALIZE,
        *_SAVED,
        *[_load()] * 30,
        versions=">=2.49",
    ),
    *_both(
        1004,
        "a device is created without a pointer for its handle",
        call("QnnDevice_create", "log", 0, 0),
        opens=False,
    ),
    *_htp(
        1100,
        "a node is added to a finalized graph",
        *_READY,
        call("QnnGraph_addNode", "graph", value=operation("Relu", "tin", "tout", name="late")),
    ),
    *_both(2000, "an unknown capability is queried", call("QnnProperty_hasCapability", 999)),
    *_both(3110, "an op without inputs is validated", _validate("Relu", inputs=0)),
    Provocation(
        4000,
        "gpu",
        "a backend is created with an empty PATH, so without the offline compiler",
        (Step("backend-create"),),
        opens=False,
        environment={"PATH": "/nowhere"},
    ),
    *_gpu(
        4003,
        "a backend is created with an option that does not exist",
        call("QnnBackend_create", "log", "[[99 0]]", "&other"),
        opens=False,
    ),
    *_both(
        4004,
        "an op package without a path is registered",
        call("QnnBackend_registerOpPackage", "backend", 0, 0, 0),
    ),
    *_both(4005, "an op that does not exist is validated", _validate("Nothing")),
    *_gpu(
        4007,
        "a library that is no op package is registered as one",
        call("QnnBackend_registerOpPackage", "backend", "'libc.so.6'", "'none'", 0),
    ),
    *_both(4011, "an invalid backend handle is freed", call("QnnBackend_free", _NONSENSE)),
    *_both(
        4012,
        "a backend is configured with an option that does not exist",
        call("QnnBackend_setConfig", "backend", "[[99 0]]"),
    ),
    *_both(
        5000,
        "a context is loaded from no bytes",
        _load("?64", "0"),
    ),
    *_both(5002, "an invalid context handle is freed", call("QnnContext_free", _NONSENSE, 0)),
    *_both(5003, "the binary of a context with an unfinalized graph is requested", *_BUILT, _SIZE),
    *_htp(
        5005,
        "a context with 8 damaged bytes in its graph is loaded",
        *_BINARY,
        _damage(8400),
        _load(),
        versions=">=2.51",
        otherwise=1100,
    ),
    *_both(
        5007,
        "the binary of a context is written into 16 bytes",
        *_READY,
        call("QnnContext_getBinary", "ctx", "?16", 16, "&done"),
    ),
    *_htp(
        5010,
        "a context joins a group that shares spill-fill buffers",
        *_BINARY,
        _load(config="[[0 [2 0 0x100000]]]"),
    ),
    *_htp(6000, "a graph is executed without inputs", *_READY, _execute("0", 0)),
    *_gpu(6000, "a graph is executed without outputs", *_READY, _execute(outputs=0)),
    *_both(
        6001,
        "an invalid graph handle is executed",
        call("QnnGraph_execute", _NONSENSE, 0, 0, 0, 0, 0, 0),
    ),
    *_gpu(
        6002,
        "a graph is retrieved by a name that the context does not have",
        *_READY,
        call("QnnGraph_retrieve", "ctx", "'other'", "&found"),
    ),
    *_both(6003, "two graphs get the same name", *_NEW, _GRAPH),
    *_both(
        6004,
        "a graph is executed with a tensor that it does not have",
        *_READY,
        _execute(tensor("in", APP_WRITE, number=4711, data=f"?{_BYTES}", size=_BYTES)),
    ),
    *_both(
        6005,
        "a node is added whose tensors were not created",
        *_NEW,
        call(
            "QnnGraph_addNode",
            "graph",
            value=operation(
                "Relu", tensor("in", APP_WRITE, number=77), tensor("out", APP_READ, number=78)
            ),
        ),
    ),
    *_gpu(
        6006,
        "a graph is executed with an invalid profile handle",
        *_READY,
        _execute(profile=_NONSENSE),
    ),
    *_htp(
        6007,
        "a node is added whose package does not exist",
        *_BUILT[:4],
        call("QnnGraph_addNode", "graph", value=operation("Relu", "tin", "tout", package="none")),
    ),
    *_gpu(
        6020,
        "a graph is created with an empty backend-specific configuration",
        _CONTEXT,
        call("QnnGraph_create", "ctx", "'g'", "[[0 0]]", "&graph"),
    ),
    *_both(6022, "a graph without nodes is finalized", *_NEW, _FINALIZE),
    *_both(6023, "an unfinalized graph is executed", *_BUILT, _execute()),
    *_htp(
        6024,
        "a tensor is created in a finalized graph",
        *_READY,
        call("QnnTensor_createGraphTensor", "graph", tensor("late", APP_WRITE)),
    ),
    *_gpu(
        6024,
        "a node is added to a finalized graph",
        *_READY,
        call("QnnGraph_addNode", "graph", value=operation("Relu", "tin", "tout", name="late")),
    ),
    *_gpu(
        6031,
        "a context is freed with an invalid profile handle",
        _CONTEXT,
        call("QnnContext_free", "ctx", _NONSENSE),
    ),
    *_gpu(6999, "a graph is executed without a GPU", *_READY, _execute()),
    *_both(
        7001,
        "a tensor is created with an invalid graph handle",
        call("QnnTensor_createGraphTensor", _NONSENSE, tensor("in", APP_WRITE)),
    ),
    *_htp(7003, "two tensors get the same name", *_NEW, _INPUT, _INPUT),
    *_both(
        7004,
        "a constant tensor is created without its data",
        *_NEW,
        call("QnnTensor_createGraphTensor", "graph", tensor("in", STATIC)),
    ),
    *_htp(
        7007,
        "a tensor that cannot be updated is updated",
        *_READY,
        call("QnnTensor_updateGraphTensors", "graph", f"[{tensor('in', APP_WRITE)}]", 1),
    ),
    *_gpu(
        8000,
        "memory is registered without a description",
        _CONTEXT,
        call("QnnMem_register", "ctx", 0, 1, "&memory"),
    ),
    *_gpu(
        8001,
        "memory that was not registered is deregistered",
        call("QnnMem_deRegister", f"[{_NONSENSE}]", 1),
    ),
    *_htp(
        9000,
        "a graph is executed with an invalid signal handle",
        *_READY,
        _execute(signal=_NONSENSE),
    ),
    *_both(
        10000,
        "an error code is explained without a pointer for the text",
        call("QnnError_getMessage", 1002, 0),
    ),
    *_both(10001, "an unknown error code is explained", call("QnnError_getMessage", 4711, "&text")),
    *_both(11003, "an unknown log level is set", call("QnnLog_setLogLevel", "log", 99)),
    *_both(11004, "a null log handle is freed", call("QnnLog_free", 0)),
    *_both(12000, "an invalid profile handle is freed", call("QnnProfile_free", _NONSENSE)),
    *_both(14000, "an invalid device handle is freed", call("QnnDevice_free", _NONSENSE)),
    *_both(
        14001,
        "a device is created with an option that does not exist",
        call("QnnDevice_create", "log", "[[99 0]]", "&other"),
        opens=False,
    ),
    *_htp(
        14003,
        "a device is freed while a context uses it",
        _CONTEXT,
        call("QnnDevice_free", "device"),
        versions="<2.49",
    ),
    *_both(
        30000,
        "metadata is requested with an invalid system context handle",
        call("QnnSystemContext_getMetaData", 0, "?64", 64, "&info"),
    ),
    *_both(
        30001,
        "metadata is requested without a pointer for it",
        _SYSTEM,
        call("QnnSystemContext_getMetaData", "system", "?64", 64, 0),
    ),
    *_htp(
        30002,
        "a context with 8 damaged bytes in its header is loaded",
        *_BINARY,
        _damage(80),
        _load(),
    ),
    *_both(
        30010,
        "metadata is read from zeros",
        _SYSTEM,
        call("QnnSystemContext_getMetaData", "system", "?64", 64, "&info"),
    ),
)


@dataclass(frozen=True)
class OrtProvocation:
    """A way to get a code through ONNX Runtime: a model, and options of the QNN provider."""

    code: int
    backend: str
    trigger: str
    model: Model
    options: Mapping[str, str] = field(default_factory=dict)
    versions: str = ">=2.47"
    otherwise: int | None = None

    def __str__(self) -> str:
        """Its part of the case's name."""
        return str(self.code)


ORT_PROVOCATIONS: tuple[OrtProvocation, ...] = (
    OrtProvocation(
        14001,
        "htp",
        "a session is created for an unknown SoC",
        Model("tiny"),
        {"soc_model": "9999"},
    ),
    OrtProvocation(3110, "gpu", "a session is created for an 8-bit model", Model("io-heavy", 2)),
    OrtProvocation(6999, "gpu", "a session is run without a GPU", Model("tiny")),
)
