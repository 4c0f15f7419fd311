"""Steps for buffers that stay, samples of memory, and contexts that share (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

from harness.errors import ConfigError
from harness.probe.plan import Step

TensorMemory = Literal["raw", "memhandle"]
TENSOR_MEMORIES: tuple[TensorMemory, ...] = get_args(TensorMemory)
MAX_LIST = 48


def io_bind(
    context: int,
    memory: TensorMemory,
    *,
    inputs: Iterable[str],
    expected: Iterable[str] = (),
    graph: int = 0,
) -> Step:
    """Gives a graph the buffers that `io_run` executes with, inputs read from files.

    `raw` buffers are the process's own; those for `memhandle` come from rpcmem, a DMA-BUF heap or a
    memfd, the first that the device has (the event says which), and are registered with QnnMem.
    """
    if memory not in TENSOR_MEMORIES:
        raise ConfigError(f"no memory {memory!r}", field="memory", choices=TENSOR_MEMORIES)
    fields = {"context": str(context), "graph": str(graph), "memory": memory}
    fields |= {f"input.{index}": file for index, file in enumerate(inputs)}
    fields |= {f"expect.{index}": file for index, file in enumerate(expected)}
    return Step("io-bind", fields)


def io_run(
    context: int,
    *,
    repeat: int = 1,
    tolerance: float = 0.0,
    profile: Literal["basic", "detailed"] | None = None,
) -> Step:
    """Executes with the buffers of `io_bind`; with `profile`, the last run's events are told."""
    fields = {"context": str(context), "tolerance": f"{tolerance:.17g}", "repeat": str(repeat)}
    return Step("io-run", fields | ({"profile": profile} if profile else {}))


def io_release(context: int) -> Step:
    """Takes the buffers of a context back, if it has any."""
    return Step("io-release", {"context": str(context)})


def memory_sample(label: str) -> Step:
    """Says what the process holds now: RSS, PSS, and shared buffers that are not the probe's."""
    return Step("memory-sample", {"label": label})


def context_load_shared(
    context: int, file: str, *, max_spill_fill_bytes: int, group: int | None = None
) -> Step:
    """Loads a context into the spill-fill group that context `group` began; None begins one."""
    fields = {"context": str(context), "file": file, "max_spill_fill": str(max_spill_fill_bytes)}
    return Step("context-load", fields | ({} if group is None else {"group": str(group)}))


def context_load_list(first: int, files: Iterable[str], *, share: bool = True) -> Step:
    """Loads contexts, numbered from `first`, in one call, and waits until all are there."""
    named = {f"file.{index}": file for index, file in enumerate(files)}
    if not 1 <= len(named) <= MAX_LIST:
        raise ConfigError(f"{len(named)} contexts, 1 to {MAX_LIST} are possible", field="files")
    return Step("context-load-list", {"first": str(first), "share": str(int(share))} | named)
