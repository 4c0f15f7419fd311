"""Outputs that stay with a run, each once: those of other versions are compared with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.contexts.context.metadata import tensors_of
from harness.contexts.context.session_plan import DeployedContext, saved_output
from harness.contexts.sources.onnx_model import OnnxModel
from harness.ground.files.whole_file import keep_whole
from harness.probe.transcript import Transcript
from harness.verdict.results.json_value import whole_numbers
from harness.verdict.results.run_folder import OUTPUTS

MAX_BYTES: Final = 256 << 20
"""So much of a case is kept with the probe, of an output with ONNX Runtime."""

Fetch = Callable[..., bytes]


@dataclass(frozen=True)
class KeptOutput:
    """An output of a case, with a file of what it is told against (`against` in plain words).

    `file` holds what came; None where that was too much to be kept. Its values are those of the
    raw data, plus `offset`, times `scale`, where it is quantised. `of` is what it is an output of,
    `sample` the inputs that it comes of, where there are several.
    """

    name: str
    data_type: str
    shape: tuple[int, ...]
    scale: float | None
    offset: int | None
    file: Path | None
    reference: Path
    against: str
    of: str = ""
    sample: str = ""


def with_reference(
    contexts: Sequence[DeployedContext], found: Mapping[str, Any], run_folder: Path
) -> list[KeptOutput]:
    """Those of the outputs in a record that something is known to tell them against (pure)."""
    told = []
    for deployed in contexts:
        kept = found.get(str(deployed.context.source), {"outputs": ()})["outputs"]
        by_name = {one["name"]: one for one in kept}
        source = deployed.context.source
        of = (source.model, source.sample) if isinstance(source, OnnxModel) else (str(source),)
        for context in (one.context for one in (deployed, *deployed.others)):
            outputs = context.metadata["graphs"][context.graph]["outputs"]
            several = context.graph_name
            for output, reference in zip(outputs, context.reference, strict=False):
                name = f"{several}/{output['name']}" if several else output["name"]
                if (one := by_name.get(name)) is not None:
                    facts = one["scale"], one["offset"]
                    file = run_folder / OUTPUTS / f"{one['digest']}.raw"
                    shape, what = tuple(output["dimensions"]), one["data_type"]
                    rest = (context.against, *of)
                    told.append(KeptOutput(name, what, shape, *facts, file, reference, *rest))
    return told


def keep_outputs_of(
    contexts: Sequence[DeployedContext],
    transcript: Transcript,
    on_device: str,
    fetch: Fetch,
    run_folder: Path,
) -> dict[str, object]:
    """Takes what executions saved below a folder of the device, for the record of a case.

    Outputs of a binary with several graphs have the graph in their names: `decode/y`. Contents are
    called by the hash that the probe has told. What the run has already is not taken again, nor is
    more than 256 MiB of one case. Raises DeviceError, InfraError.
    """
    digests = {
        (step.context, step.data.get("graph")): step.data.get("digests")
        for step in transcript.steps
        if step.verb == "execute" and (step.ok or step.error == "mismatch")
    }
    found: dict[str, object] = {}
    left = MAX_BYTES
    for number, deployed in enumerate(contexts):
        outputs = []
        for context in (one.context for one in (deployed, *deployed.others)):
            graph = context.metadata["graphs"][context.graph]
            told = whole_numbers(digests.get((number, graph["name"])))
            tensors = tensors_of(graph, "outputs", context.path)
            for at, (tensor, digest) in enumerate(zip(tensors, told, strict=False)):
                name = f"{digest:016x}-{tensor.size}"
                file = run_folder / OUTPUTS / f"{name}.raw"
                if not file.exists() and tensor.size <= left:
                    left -= tensor.size
                    remote = saved_output(on_device, number, context.graph, at)
                    keep_whole(file, fetch(remote, max_bytes=tensor.size))
                known = graph["outputs"][at]
                several = context.graph_name
                outputs.append(
                    {
                        "name": f"{several}/{tensor.name}" if several else tensor.name,
                        "data_type": tensor.data_type,
                        "scale": known.get("scale"),
                        "offset": known.get("offset"),
                        "digest": name,
                    }
                )
        if outputs:
            source = deployed.context.source
            found[str(source)] = {"sha256": deployed.context.sha256, "outputs": outputs}
    return found
