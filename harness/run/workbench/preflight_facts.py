"""What preflight wants to know of a device, and of the contexts that a case takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Literal

from harness.contexts.context.metadata import entries, memory_bytes, named_build, needs
from harness.contexts.context.source import Context
from harness.device.dsp.hexagon import lacks_floats
from harness.device.lab.attach import AttachedDevice
from harness.ground.facts.backends import RPC_LIBRARY
from harness.ground.files.cache import BOARDS, cache_root
from harness.libraries.runtimes.preflight import ContextFacts
from harness.libraries.runtimes.preflight_linking import SYSTEM_LIBRARIES, TargetFacts

PreflightMode = Literal["strict", "warn", "off"]
"""strict: an error of preflight keeps a case from running; warn: it is recorded; off: no look."""

_SIDES: Final = ("inputs", "outputs")


def preflight_device(device: AttachedDevice) -> TargetFacts:
    """What preflight wants to know of an attached device."""
    return TargetFacts(
        target=device.target,
        soc=device.soc,
        htp_arch=device.htp_arch,
        glibc=device.facts.glibc,
        android_api=device.facts.android_api,
        libraries=_libraries_of(device),
        page_bytes=device.facts.page_bytes,
        lacks_floats=device.simulated_dsp is not None and lacks_floats(cache_root() / BOARDS),
    )


def preflight_context(name: str, context: Context) -> ContextFacts:
    """What preflight wants to know of a context."""
    facts = preflight_file(name, context.metadata)
    # of one that is compiled here the compiler chose the SoC, by the device's HTP
    soc_model = None if context.source.compiled else facts.soc_model
    made_by, arch = context.made_by, context.htp_arch
    return replace(facts, compiler=made_by, htp_arch=arch, soc_model=soc_model)


def preflight_file(name: str, metadata: Mapping[str, Any]) -> ContextFacts:
    """What preflight wants to know of a binary, as far as its own metadata tell."""
    arch, soc = metadata.get("dsp_arch"), metadata.get("soc_model")
    graphs = entries(metadata, "graphs")
    tensors = (one for graph in graphs for side in _SIDES for one in entries(graph, side))
    has_floats = any(str(one.get("data_type")).startswith("float") for one in tensors)
    return ContextFacts(
        name,
        named_build(metadata),
        arch if isinstance(arch, int) else None,
        needs(metadata)["vtcm_bytes"],
        memory_bytes(metadata),
        soc if isinstance(soc, int) else None,
        has_floats,
    )


def _libraries_of(device: AttachedDevice) -> frozenset[str] | None:
    shown = device.facts.coprocessors
    usual = SYSTEM_LIBRARIES[device.target]
    if shown is None or RPC_LIBRARY not in usual:
        return None
    has_rpc = any(path.rpartition("/")[2].startswith(RPC_LIBRARY) for path in shown.dsp)
    return usual if has_rpc else usual - {RPC_LIBRARY}
