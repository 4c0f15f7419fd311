"""Steps that drive ONNX Runtime, call one function of QNN, or keep and share buffers (pure).

For tests that no other step allows: building a graph by hand, and calling a function with wrong
arguments. The arguments are expressions of native/call.c.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harness.core.context_options import option_fields
from harness.core.error_codes import TensorMemory
from harness.core.errors import ConfigError
from harness.probe.plan import ProfileLevel, Rounds, Step, executed_fields, numbered, texts

QNN_EP: Final = "QNNExecutionProvider"
"""ORT's name of Qualcomm's execution provider, built in or from a plug-in library."""
CPU_EP: Final = "CPUExecutionProvider"


@dataclass(frozen=True)
class Provider:
    """The execution provider of a session and its options.

    `ep` is the name of an EP that a plug-in library brought, or, with `builtin`, the short name
    under which ORT knows one of its own (`QNN`). `device` is its number among the EP's devices.
    """

    ep: str = QNN_EP
    options: Mapping[str, str] = field(default_factory=dict)
    builtin: bool = False
    device: int = 0


def ort_load(library: str) -> Step:
    """Open ORT's library (a path on the device)."""
    return Step("ort-load", {"lib": library})


def ort_env(*, causes: bool = True) -> Step:
    """Create ORT's environment; from then on ORT's log becomes events.

    `causes`: ORT logs everything, because the QNN EP passes on the backend's errors at the lowest
    level only. Lines as severe as the plan's log level are kept. This costs time: a run of
    0.15 ms took twice as long. Without it, ORT itself logs no more than the plan's level.
    """
    return Step("ort-env", {"severity": "0"} if causes else {})


def ort_register_ep(library: str, name: str = QNN_EP) -> Step:
    """Register a plug-in library, which must offer a device of the EP `name`."""
    return Step("ort-register-ep", {"name": name, "lib": library})


def ort_session(
    session: int,
    model: str,
    provider: Provider | None = None,
    *,
    options: Mapping[str, str] | None = None,
    threads: int = 1,
    fallback: bool = False,
) -> Step:
    """Create session number `session` from a model file; without a provider it is the CPU's.

    `options` are ORT's session options by their keys. Unless `fallback`, a session with a
    provider refuses to give nodes to the CPU. `threads` is the number of ORT's threads within one
    node, 0 its own choice. Raises ConfigError for a key with an equals sign.
    """
    session_options = dict(options or {})
    if provider is not None and not fallback:
        session_options.setdefault("session.disable_cpu_ep_fallback", "1")
    session_options.setdefault("session.record_ep_graph_assignment_info", "1")
    fields = {"context": str(session), "file": model, "threads": str(threads)}
    if provider is not None:
        fields["ep"] = f"builtin:{provider.ep}" if provider.builtin else provider.ep
        fields["device"] = str(provider.device)
        fields |= _pairs("provider", provider.options)
    return Step("ort-session", fields | _pairs("session", session_options))


def ort_placement(session: int, *, whole: str | None = None) -> Step:
    """Report which EP got which nodes; with `whole`, fail unless that EP got them all."""
    return Step("ort-placement", texts(context=session, whole=whole))


def ort_run(
    session: int,
    *,
    inputs: Iterable[str] = (),
    expected: Iterable[str | None] = (),
    saved: Iterable[str | None] = (),
    tolerance: float = 0.0,
    repeat: int | Rounds = 1,
) -> Step:
    """Run a session `repeat` times with inputs from files, as `plan.execute` does a graph."""
    files = executed_fields(inputs, expected, saved, tolerance, repeat)
    return Step("ort-run", texts(context=session) | files)


def ort_session_free(session: int) -> Step:
    """Release a session, if there is one."""
    return Step("ort-session-free", {"context": str(session)})


def ort_end(name: str | None = QNN_EP) -> tuple[Step, ...]:
    """Release the plug-in library registered as `name` (None: there is none), and ORT."""
    unregister = () if name is None else (Step("ort-unregister-ep", {"name": name}),)
    return (*unregister, Step("ort-env-free"))


def dump_options(path: str, *, embed: bool) -> dict[str, str]:
    """Session options that make ORT write the compiled model to `path`.

    `embed`: the context binary goes into the model, else into a file beside it.
    """
    return {
        "ep.context_enable": "1",
        "ep.context_file_path": path,
        "ep.context_embed_mode": "1" if embed else "0",
    }


def _pairs(kind: str, options: Mapping[str, str]) -> dict[str, str]:
    for key in options:
        if not key or "=" in key:
            raise ConfigError(f"not the name of an option: {key!r}", field=kind)
    return numbered(kind, (f"{key}={value}" for key, value in options.items()))


# In the order of the table that QnnInterface_getProviders gives. It is append-only: these are the
# same in all libraries with core API 2 (checked with QNN 2.47.0 to 2.51.0).
_NAMES: Final = Path(__file__).with_name("qnn_functions.txt").read_text("ascii").split()
_SYSTEM_NAMES: Final = (
    "QnnSystemContext_create",
    "QnnSystemContext_getBinaryInfo",
    "QnnSystemContext_getMetaData",
    "QnnSystemContext_free",
)
SLOTS: Final = MappingProxyType(
    {name: index for names in (_NAMES, _SYSTEM_NAMES) for index, name in enumerate(names)}
)
"""Index of each function in its table."""

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
    """Call a function by its name, such as QnnGraph_create.

    `value` is a structure that goes by value, behind the first argument; `file` is what `@file` and
    `#file` stand for. With `save` the bytes that the variables `data` and `size` name are written
    there afterwards. Raises ConfigError for a function that is not in `SLOTS`.
    """
    if api not in SLOTS:
        raise ConfigError(f"no function {api!r}", field="api", choices=SLOTS)
    system = "yes" if api in _SYSTEM_NAMES else None
    fields = texts(api=api, slot=SLOTS[api], value=value, file=file, save=save, system=system)
    return Step("call", fields | numbered("arg", arguments))


def packed_words(words: Sequence[int]) -> str:
    """Return the array argument of a call: numbers of 32 bits, two in each word of 64."""
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
    """Return a pointer to a Qnn_Tensor_t of version 1; `kind` is APP_WRITE, APP_READ or STATIC."""
    named = name if re.fullmatch(r"\d+", name) else f"'{name}'"
    rank = len(shape) if rank is None else rank
    unquantised = f"{_UNDEFINED | _UNDEFINED << 32} 0 0 0 0"
    behind = f"{rank} {packed_words(shape)} {memory} {data} {size} 0 0 0"
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
    """Return a Qnn_OpConfig_t of version 1 without parameters, for `value` of `call`."""
    return f"[1 '{name}' '{package}' '{kind}' 0 0 {counts[0]} {inputs} {counts[1]} {outputs}]"


BACK_MS = 2000


def io_bind(
    context: int,
    memory: TensorMemory,
    *,
    inputs: Iterable[str],
    expected: Iterable[str] = (),
    graph: int = 0,
    share: bool = False,
) -> Step:
    """Bind the buffers of a graph for `io_run`, with inputs from files.

    `raw` buffers are the process's own. Those for `memhandle` come from rpcmem, a DMA-BUF heap or a
    memfd, the first that the device has (the event says which), and are registered with QnnMem.
    With `share` all contexts use the same ones: each registers them, and executes in its turn.
    """
    fields = texts(context=context, graph=graph, memory=memory, share=int(share) or None)
    fields |= numbered("input", inputs) | numbered("expect", expected)
    return Step("io-bind", fields)


def io_run(
    context: int, *, repeat: int = 1, tolerance: float = 0.0, profile: ProfileLevel | None = None
) -> Step:
    """Execute with the buffers of `io_bind`; with `profile`, report the last run's events."""
    real = f"{tolerance:.17g}"
    return Step("io-run", texts(context=context, tolerance=real, repeat=repeat, profile=profile))


def io_release(context: int) -> Step:
    """Release the buffers of a context, if it has any."""
    return Step("io-release", {"context": str(context)})


def memory_sample(label: str, *, all_back: bool = False) -> Step:
    """Report the process's memory: RSS, PSS, and shared buffers that are not the probe's.

    `all_back`: it must not be more than at the first sample. The backend's threads get two seconds
    to free their memory.
    """
    return Step("memory-sample", texts(label=label, back_ms=BACK_MS if all_back else None))


SHARED: Final[Mapping[str, object]] = MappingProxyType({"share_resources": 1})


def context_load_list(
    first: int, files: Iterable[str], *, options: Mapping[str, object] = SHARED
) -> Step:
    """Load contexts, numbered from `first`, in one call, and wait until all are loaded.

    `options` are as in `context_load`; by default the contexts share their resources.
    """
    fields = texts(first=first) | numbered("file", files)
    return Step("context-load-list", fields | option_fields(options))
