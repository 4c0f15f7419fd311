"""Outputs that are kept with a run, each once, to be compared with those of other versions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.core.files import keep_whole
from harness.models.context_metadata import tensors_of
from harness.models.session_plan import DeployedContext, saved_output
from harness.probe.transcript import Transcript
from harness.results.record import whole_numbers
from harness.results.run_folder import OUTPUTS

MAX_BYTES: Final = 256 << 20
"""The limit for all outputs of a case with the probe, for one output with ONNX Runtime."""


@dataclass(frozen=True)
class KeptOutput:
    """An output of a case, with the file of its reference (`against` names it in words).

    `file` holds the output, None if it was too large to keep. The values of a quantised output are
    (raw + `offset`) * `scale`. `of` names the model or context.
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


def keep_outputs_of(
    contexts: Sequence[DeployedContext],
    transcript: Transcript,
    on_device: str,
    fetch: Callable[..., bytes],
    run_folder: Path,
) -> tuple[dict[str, object], list[KeptOutput]]:
    """Fetch the outputs that executions saved below a folder of the device.

    Returns the entry for the case's record, and the outputs that have a reference. Names of a
    binary with several graphs include the graph: `decode/y`. Files are named by the hash that the
    probe reported; those that the run has already are not fetched again, nor more than 256 MiB of
    one case. Raises DeviceError, InfraError.
    """
    digests = {
        (step.context, step.data.get("graph")): step.data.get("digests")
        for step in transcript.steps
        if step.verb == "execute" and (step.ok or step.error == "mismatch")
    }
    recorded: dict[str, object] = {}
    kept_outputs: list[KeptOutput] = []
    room = MAX_BYTES
    for number, deployed in enumerate(contexts):
        outputs, source = [], deployed.context.source
        for context in (piece.context for piece in (deployed, *deployed.others)):
            graph = context.metadata["graphs"][context.graph]
            graph_digests = whole_numbers(digests.get((number, graph["name"])))
            tensors = tensors_of(graph, "outputs", context.path)
            for index, (tensor, digest) in enumerate(zip(tensors, graph_digests, strict=False)):
                content = f"{digest:016x}-{tensor.size}"
                file = run_folder / OUTPUTS / f"{content}.raw"
                if not file.exists() and tensor.size <= room:
                    room -= tensor.size
                    remote = saved_output(on_device, number, context.graph, index)
                    keep_whole(file, fetch(remote, max_bytes=tensor.size))
                entry, graph_name = graph["outputs"][index], context.graph_name
                name = f"{graph_name}/{tensor.name}" if graph_name else tensor.name
                kind, scale, offset = tensor.data_type, entry.get("scale"), entry.get("offset")
                description = {"name": name, "data_type": kind, "scale": scale, "offset": offset}
                outputs.append(description | {"digest": content})
                for reference in context.reference[index : index + 1]:
                    values = (name, kind, tensor.shape or (), scale, offset)
                    kept_outputs.append(
                        KeptOutput(*values, file, reference, context.against, str(source))
                    )
        if outputs:
            recorded[str(source)] = {"sha256": deployed.context.sha256, "outputs": outputs}
    return recorded, kept_outputs


NamedShape = tuple[str, str, tuple[int, ...]]
"""Name, type and shape of an output."""


@dataclass(frozen=True)
class ToKeep:
    """The outputs of the steps of a verb, each with its reference, which `against` names."""

    verb: str
    results: Sequence[NamedShape]
    references: Sequence[Path]
    against: str

    def save(
        self, run_folder: Path, content: Callable[[int, int], bytes | None]
    ) -> list[KeptOutput]:
        """Save the outputs in the run's folder; `content` returns one, given its index and size."""
        saved = []
        for index, (result, file) in enumerate(zip(self.results, self.references, strict=False)):
            size, path = file.stat().st_size, None
            data = content(index, size) if size <= MAX_BYTES else None
            if data is not None:
                digest = hashlib.sha256(data).hexdigest()[:16]
                path = run_folder / OUTPUTS / f"{digest}-{len(data)}.raw"
                keep_whole(path, data)
            saved.append(KeptOutput(*result, None, None, path, file, self.against))
        return saved
