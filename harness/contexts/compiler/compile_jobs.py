"""What the compiler is told for a context, and for the reference of a model; what it writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from harness.contexts.compiler.compiler import CompileError, CompileJob, InputFile, ReferenceJob
from harness.contexts.compiler.models import PREPARATIONS, Model
from harness.contexts.context.metadata import Sizes, Unreadable, entries, read_each
from harness.ground.facts.socs import SOCS
from harness.libraries.containers.artefact import ArtefactError, Piece
from harness.libraries.containers.open import open_artefact
from harness.libraries.runtimes.pypi import ORT_HOST_VERSION
from harness.probe.build import ProbeBuilder

# The SoC given with an architecture that no known SoC has: what comes out tells the truth.
_SOME_SOC_MODEL: Final = 43

ContextKey = tuple[Model, str, int]
"""Model, QNN version of the compiler, HTP architecture (73 for v73)."""


def compile_options(htp_arch: int, spec: Model | None = None) -> dict[str, str]:
    """The options of ORT's QNN execution provider for an HTP architecture (pure; ORT docs).

    Half precision for float models needs a SoC model as well; it is that of the first SoC known
    to have this architecture.
    """
    soc = next((soc for soc in SOCS.values() if soc.htp_arch == htp_arch), None)
    return {
        "htp_arch": str(htp_arch),
        "soc_model": str(soc.soc_model if soc else _SOME_SOC_MODEL),
        "enable_htp_fp16_precision": "1",
        **(PREPARATIONS[spec.prepare] if spec else {}),
    }


def reference_job(spec: Model, model: Path) -> ReferenceJob:
    """Computes the outputs of a model; writes its inputs beside it."""
    inputs = []
    for at, (name, array) in enumerate(spec.inputs().items()):
        path = model.with_name(f"input.{at}.raw")
        array.tofile(path)
        inputs.append(InputFile(name, path, array.dtype.str, array.shape))
    outputs = {
        name: model.with_name(f"expected.{at}.raw") for at, name in enumerate(spec.outputs())
    }
    return ReferenceJob(
        job=f"reference of {spec}",
        complaint=f"this computer's ORT {ORT_HOST_VERSION} does not compute {spec} on the CPU",
        model=model,
        inputs=tuple(inputs),
        outputs=outputs,
    )


def compile_job(wanted: ContextKey, model: Path, folder: Path) -> CompileJob:
    """Makes a context out of a model; makes the folder for it."""
    spec, compiler, arch = wanted
    folder.mkdir()
    return CompileJob(
        job=f"{spec} for v{arch}",
        complaint=f"QNN {compiler} does not compile {spec} for HTP v{arch}",
        model=model,
        folder=folder,
        options=compile_options(arch, spec),
    )


def made_binary(job: CompileJob) -> Path:
    """The context binary that a job has made. Raises CompileError unless there is exactly one."""
    binaries = list(job.folder.glob("*.bin"))
    if len(binaries) != 1:
        reason = f"it made {len(binaries)} context binaries instead of one"
        raise CompileError(job.complaint, chain=[reason])
    return binaries[0]


def epcontext_max_size(model: Path, what: str) -> int | None:
    """The largest spill-fill size that an EPContext model states (bytes); None if it states none.

    Only nodes that carry a context count (`main_context`). Raises CompileError, whose text begins
    with `what`, if the compiler cannot have meant this file.
    """
    try:
        pieces = open_artefact(model).pieces
    except ArtefactError as error:
        raise CompileError(what, chain=[f"cannot read {model.name}: {error}"]) from error
    return max((one.facts["max_size"] for one in pieces if "max_size" in one.facts), default=None)


def read_metadata(
    probes: ProbeBuilder, system_library: Path, binaries: Sequence[Path]
) -> list[dict[str, Any]]:
    """The metadata of files that are binaries.

    Raises CompileError if the library does not read one of them; else as `read_each`.
    """
    pieces = [Piece(path, 0, path.stat().st_size, "", "context") for path in binaries]
    found = []
    for one in read_each(probes, system_library, pieces):
        if isinstance(one, Unreadable):
            problem = f"{system_library.name} cannot read a context that its own compiler made"
            raise CompileError(problem, chain=[one.reason], output=one.log)
        found.append(one)
    return found


def tensor_order(
    metadata: Mapping[str, Any], what: str, inputs: Sizes, outputs: Sizes
) -> tuple[list[str], list[str]]:
    """The names of the graph's inputs and outputs in the binary's order (pure).

    Raises CompileError, whose text begins with `what`, unless the binary holds one graph with
    exactly these tensors, of these sizes.
    """
    graphs = entries(metadata, "graphs")
    if len(graphs) != 1:
        raise CompileError(what, chain=[f"it has {len(graphs)} graphs instead of one"])
    found = []
    for kind, expected in (("inputs", inputs), ("outputs", outputs)):
        sizes = {str(one.get("name")): one.get("bytes") for one in entries(graphs[0], kind)}
        if sizes != dict(expected):
            raise CompileError(what, chain=[f"its {kind} are {sizes}, the model's {expected}"])
        found.append(list(sizes))
    return found[0], found[1]
