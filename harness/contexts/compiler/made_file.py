"""One model compiled to a file of its own: a context binary, or an .onnx that holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from harness.contexts.compiler.compile_jobs import compile_job, read_metadata
from harness.contexts.compiler.compiler import CompileError, run_jobs
from harness.contexts.compiler.models import Model
from harness.contexts.context.metadata import check_arch
from harness.ground import ConfigError, disk_errors, scratch_folder, write_whole
from harness.ground.facts.socs import Soc
from harness.ground.files.whole_file import sha256_of
from harness.libraries.runtimes.pypi import CompilerHost
from harness.probe import ProbeBuilder

_MOST_EMBEDDED: Final = (2 << 30) - (1 << 20)
"""What protobuf can hold beside the rest of a model (bytes)."""


@dataclass(frozen=True)
class MadeFile:
    """What was compiled: the files that were written, the binary's size (bytes), its metadata.

    `sha256` is that of the binary, wherever it lies.
    """

    files: tuple[Path, ...]
    sha256: str
    bytes: int
    metadata: Mapping[str, Any]


def compile_to_file(
    model: Model,
    host: CompilerHost,
    soc: Soc,
    probes: ProbeBuilder,
    output: Path,
    *,
    embedded: bool = True,
) -> MadeFile:
    """Compiles a model for the HTP of a SoC into `output`, which is there whole or not at all.

    `output` that ends with .onnx becomes a model with one EPContext node, which holds the binary,
    or with `embedded` false names a .bin that is written beside it. Anything else is the binary
    itself. Raises CompileError if the compiler does not make it, ConfigError for a SoC without
    HTP and for a binary that is too large to be embedded, InfraError if it cannot be written.
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
        binaries = list(job.folder.glob("*.bin"))
        if len(binaries) != 1:
            reason = f"it made {len(binaries)} context binaries instead of one"
            raise CompileError(job.complaint, chain=[reason])
        (metadata,) = read_metadata(probes, host.system_library, binaries)
        check_arch(metadata, job.complaint, arch)
        digest, size = sha256_of(binaries[0]), binaries[0].stat().st_size
        if output.suffix != ".onnx":
            contents = {output: binaries[0].read_bytes()}
        else:
            contents = _with_epcontext(job.folder / "context.onnx", binaries[0], output, embedded)
        for path, content in contents.items():
            with disk_errors(f"cannot write {path}"):
                write_whole(path, content)
    return MadeFile(tuple(contents), digest, size, metadata)


def _with_epcontext(written: Path, binary: Path, output: Path, embedded: bool) -> dict[Path, bytes]:
    """The files of the model that the compiler wrote beside its binary, called as `output` is."""
    import onnx

    model = onnx.load(written, load_external_data=False)
    (node,) = (one for one in model.graph.node if one.op_type == "EPContext")
    content = binary.read_bytes()
    if embedded and len(content) > _MOST_EMBEDDED:
        problem = f"a context of {len(content)} bytes does not fit into an .onnx"
        raise ConfigError(problem, file=output, choices=["--beside", "a file that ends with .bin"])
    beside = output.with_suffix(".bin")
    held = {"embed_mode": int(embedded), "ep_cache_context": content if embedded else beside.name}
    kept = [one for one in node.attribute if one.name not in held]
    del node.attribute[:]
    node.attribute.extend(kept)
    node.attribute.extend(onnx.helper.make_attribute(*one) for one in held.items())
    # the model comes last: a reader of it finds what it names
    files = {} if embedded else {beside: content}
    return files | {output: model.SerializeToString()}
