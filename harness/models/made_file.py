"""One model compiled to a file of its own: a context binary, or an .onnx that holds it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from harness.core.errors import ConfigError
from harness.core.socs import Soc
from harness.core.whole_file import disk_errors, scratch_folder, sha256_of, written_whole
from harness.models.compile import compile_job, made_binary, read_metadata
from harness.models.compiler import run_jobs
from harness.models.metadata import check_arch
from harness.models.models import Model
from harness.probe.build import ProbeBuilder
from harness.runtimes.pypi import CompilerHost

_MOST_EMBEDDED: Final = (2 << 30) - (1 << 20)
"""What protobuf can hold beside the rest of a model (bytes)."""


@dataclass(frozen=True)
class MadeFile:
    """What was compiled: sha256, size (bytes) and metadata of the binary, wherever it lies."""

    sha256: str
    bytes: int
    metadata: Mapping[str, Any]


def compile_to_file(
    model: Model, host: CompilerHost, soc: Soc, probes: ProbeBuilder, output: Path
) -> MadeFile:
    """Compiles a model for the HTP of a SoC into `output`, which is there whole or not at all.

    `output` that ends with .onnx becomes a model with one EPContext node, which holds the binary.
    Anything else is the binary itself. Raises CompileError if the compiler does not make it,
    ConfigError for a SoC without HTP and for a binary that is too large to be embedded, InfraError
    if it cannot be written.
    """
    arch = soc.htp_arch
    if arch is None:
        raise ConfigError(f"{soc.name} has a DSP without HTP, which loads no contexts", field="soc")
    with scratch_folder() as work:
        source = work / "model.onnx"
        source.write_bytes(model.serialized())
        job = compile_job((model, host.qnn_version, arch), source, work / "made")
        # of all SoCs of that architecture, this one
        job = replace(job, options={**job.options, "soc_model": str(soc.soc_model)})
        refused = run_jobs(host, [job])[job.job]
        if refused is not None:
            raise refused
        binary = made_binary(job)
        (metadata,) = read_metadata(probes, host.system_library, [binary])
        check_arch(metadata, job.complaint, arch)
        digest, size = sha256_of(binary), binary.stat().st_size
        made = binary
        if output.suffix == ".onnx":
            made = _epcontext(job.folder / "context.onnx", binary, output)
        with (
            disk_errors(f"cannot write {output}"),
            made.open("rb") as content,
            written_whole(output) as stream,
        ):
            shutil.copyfileobj(content, stream)
    return MadeFile(digest, size, metadata)


def _epcontext(written: Path, binary: Path, output: Path) -> Path:
    """The model that the compiler wrote, which holds its binary now."""
    import onnx

    if (size := binary.stat().st_size) > _MOST_EMBEDDED:
        problem = f"a context of {size} bytes does not fit into an .onnx"
        raise ConfigError(problem, file=output, choices=["a file that ends with .bin"])
    model = onnx.load(written, load_external_data=False)
    (node,) = (one for one in model.graph.node if one.op_type == "EPContext")
    held = {"embed_mode": 1, "ep_cache_context": binary.read_bytes()}
    kept = [one for one in node.attribute if one.name not in held]
    del node.attribute[:]
    node.attribute.extend(kept)
    node.attribute.extend(onnx.helper.make_attribute(*one) for one in held.items())
    written.write_bytes(model.SerializeToString())
    return written
