"""Outputs that stay with a run, each once: those of other versions are compared with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from harness.contexts import DeployedContext
from harness.contexts.context.metadata import tensors_of
from harness.contexts.context.session_plan import saved_output
from harness.ground.files.whole_file import keep_whole
from harness.probe import Transcript
from harness.verdict.results.measurements import whole_numbers
from harness.verdict.results.run_folder import OUTPUTS

_MAX_BYTES: Final = 256 << 20

Fetch = Callable[..., bytes]


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
        if step.verb == "execute" and step.ok
    }
    found: dict[str, object] = {}
    left = _MAX_BYTES
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
