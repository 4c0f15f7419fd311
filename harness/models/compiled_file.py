"""One model compiled to one file: a context binary, or an .onnx that embeds it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from harness.core.errors import ConfigError
from harness.core.socs import Soc
from harness.core.whole_file import disk_errors, scratch_folder, sha256_of, written_whole
from harness.models.compile import compile_job, compiled_binary, read_metadata
from harness.models.compiler import run_jobs
from harness.models.metadata import check_arch
from harness.models.models import Model
from harness.probe.build import ProbeBuilder
from harness.runtimes.pypi import CompilerHost

_MOST_EMBEDDED: Final = (2 << 30) - (1 << 20)
"""Largest context that protobuf can hold beside the rest of a model (bytes)."""


@dataclass(frozen=True)
class CompiledFile:
    """A compiled binary: sha256, size (bytes) and metadata, embedded or not."""

    sha256: str
    bytes: int
    metadata: Mapping[str, Any]


def compile_to_file(
    model: Model, host: CompilerHost, soc: Soc, probes: ProbeBuilder, output: Path
) -> CompiledFile:
    """Compile a model for the HTP of a SoC into `output`, which is written whole or not at all.

    An `output` that ends with .onnx becomes a model with one EPContext node, which embeds the
    binary. Anything else is the binary itself. Raises CompileError if the compiler fails,
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
        # this SoC, instead of the first with its architecture
        job = replace(job, options={**job.options, "soc_model": str(soc.soc_model)})
        refused = run_jobs(host, [job])[job.job]
        if refused is not None:
            raise refused
        binary = compiled_binary(job)
        (metadata,) = read_metadata(probes, host.system_library, [binary])
        check_arch(metadata, job.complaint, arch)
        digest, size = sha256_of(binary), binary.stat().st_size
        source_file = binary
        if output.suffix == ".onnx":
            source_file = _epcontext(job.folder / "context.onnx", binary, output)
        with (
            disk_errors(f"cannot write {output}"),
            source_file.open("rb") as content,
            written_whole(output) as stream,
        ):
            shutil.copyfileobj(content, stream)
    return CompiledFile(digest, size, metadata)


def _epcontext(written: Path, binary: Path, output: Path) -> Path:
    """Embed the binary in the model that the compiler wrote; return the model's path."""
    import onnx

    if (size := binary.stat().st_size) > _MOST_EMBEDDED:
        problem = f"a context of {size} bytes does not fit into an .onnx"
        raise ConfigError(problem, file=output, choices=["a file that ends with .bin"])
    model = onnx.load(written, load_external_data=False)
    (node,) = (node for node in model.graph.node if node.op_type == "EPContext")
    embedded = {"embed_mode": 1, "ep_cache_context": binary.read_bytes()}
    others = [attribute for attribute in node.attribute if attribute.name not in embedded]
    del node.attribute[:]
    node.attribute.extend(others)
    node.attribute.extend(onnx.helper.make_attribute(*attribute) for attribute in embedded.items())
    written.write_bytes(model.SerializeToString())
    return written
