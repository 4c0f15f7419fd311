"""Outputs that stay with a run, each once: those of other versions are compared with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.core.whole_file import keep_whole
from harness.models.metadata import tensors_of
from harness.models.onnx_model import OnnxModel
from harness.models.source import DeployedContext, saved_output
from harness.probe.transcript import Transcript
from harness.results.record import whole_numbers
from harness.results.run_folder import OUTPUTS

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


def keep_outputs_of(
    contexts: Sequence[DeployedContext],
    transcript: Transcript,
    on_device: str,
    fetch: Fetch,
    run_folder: Path,
) -> tuple[dict[str, object], list[KeptOutput]]:
    """Takes what executions saved below a folder of the device.

    Returns what the record of a case has of it, and those that something is known to tell against.
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
    kept: list[KeptOutput] = []
    left = MAX_BYTES
    for number, deployed in enumerate(contexts):
        outputs, source = [], deployed.context.source
        of = (source.model, source.sample) if isinstance(source, OnnxModel) else (str(source), "")
        for context in (one.context for one in (deployed, *deployed.others)):
            graph = context.metadata["graphs"][context.graph]
            told = whole_numbers(digests.get((number, graph["name"])))
            tensors = tensors_of(graph, "outputs", context.path)
            for at, (tensor, digest) in enumerate(zip(tensors, told, strict=False)):
                content = f"{digest:016x}-{tensor.size}"
                file = run_folder / OUTPUTS / f"{content}.raw"
                if not file.exists() and tensor.size <= left:
                    left -= tensor.size
                    remote = saved_output(on_device, number, context.graph, at)
                    keep_whole(file, fetch(remote, max_bytes=tensor.size))
                known, several = graph["outputs"][at], context.graph_name
                name = f"{several}/{tensor.name}" if several else tensor.name
                kind, scale, offset = tensor.data_type, known.get("scale"), known.get("offset")
                told_of = {"name": name, "data_type": kind, "scale": scale, "offset": offset}
                outputs.append(told_of | {"digest": content})
                for reference in context.reference[at : at + 1]:
                    values = (name, kind, tensor.shape or (), scale, offset)
                    kept.append(KeptOutput(*values, file, reference, context.against, *of))
        if outputs:
            found[str(source)] = {"sha256": deployed.context.sha256, "outputs": outputs}
    return found, kept
