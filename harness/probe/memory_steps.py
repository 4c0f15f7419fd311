"""Steps for buffers that stay, samples of memory, and contexts that share (pure)."""

from __future__ import annotations

from collections.abc import Iterable

from harness.ground.facts.memory_types import TensorMemory
from harness.probe.plan import ProfileLevel, Step, given, numbered

BACK_MS = 2000


def io_bind(
    context: int,
    memory: TensorMemory,
    *,
    inputs: Iterable[str],
    expected: Iterable[str] = (),
    graph: int = 0,
) -> Step:
    """Gives a graph the buffers that `io_run` executes with, inputs read from files.

    `raw` buffers are the process's own. Those for `memhandle` come from rpcmem, a DMA-BUF heap or a
    memfd, the first that the device has (the event says which), and are registered with QnnMem.
    """
    fields = given(context=context, graph=graph, memory=memory)
    fields |= numbered("input", inputs) | numbered("expect", expected)
    return Step("io-bind", fields)


def io_run(
    context: int,
    *,
    repeat: int = 1,
    tolerance: float = 0.0,
    profile: ProfileLevel | None = None,
) -> Step:
    """Executes with the buffers of `io_bind`; with `profile`, the last run's events are told."""
    told = f"{tolerance:.17g}"
    return Step("io-run", given(context=context, tolerance=told, repeat=repeat, profile=profile))


def io_release(context: int) -> Step:
    """Takes the buffers of a context back, if it has any."""
    return Step("io-release", {"context": str(context)})


def memory_sample(label: str, *, all_back: bool = False) -> Step:
    """Says what the process holds now: RSS, PSS, and shared buffers that are not the probe's.

    `all_back`: no more should be held than at the first sample. A thread of the backend's that is
    about to give something back gets two seconds.
    """
    return Step("memory-sample", given(label=label, back_ms=BACK_MS if all_back else None))


def context_load_shared(
    context: int, file: str, *, max_spill_fill_bytes: int, group: int | None = None
) -> Step:
    """Loads a context into the spill-fill group that context `group` began; None begins one."""
    size = max_spill_fill_bytes
    return Step("context-load", given(context=context, file=file, max_spill_fill=size, group=group))


def context_load_list(first: int, files: Iterable[str], *, share: bool = True) -> Step:
    """Loads contexts, numbered from `first`, in one call, and waits until all are there."""
    return Step("context-load-list", given(first=first, share=int(share)) | numbered("file", files))
