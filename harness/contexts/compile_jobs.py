"""What the compiler is told for a context, and for the reference of a model; what it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from harness.artefacts.artefact import ArtefactError
from harness.artefacts.open import open_artefact
from harness.contexts.compiler import CompileError, CompileJob, InputFile, ReferenceJob
from harness.contexts.models import PREPARATIONS, Model
from harness.qnn.socs import SOCS
from harness.runtimes.pypi import ORT_HOST_VERSION

# The SoC given with an architecture that no known SoC has: what comes out tells the truth.
_SOME_SOC_MODEL: Final = 43

Wanted = tuple[Model, str, int]
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
        complaint=f"ORT {ORT_HOST_VERSION} does not compute {spec} on the CPU",
        model=model,
        inputs=tuple(inputs),
        outputs=outputs,
    )


def compile_job(wanted: Wanted, model: Path, folder: Path) -> CompileJob:
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


def epcontext_max_size(model: Path, what: str) -> int | None:
    """The largest spill-fill size that an EPContext model states (bytes); None if it states none.

    Only nodes that carry a context count (`main_context`). Raises CompileError, whose text begins
    with `what`, if the file is none that the compiler can have meant.
    """
    try:
        pieces = open_artefact(model).pieces
    except ArtefactError as error:
        raise CompileError(what, chain=[f"cannot read {model.name}: {error}"]) from error
    return max((one.facts["max_size"] for one in pieces if "max_size" in one.facts), default=None)
