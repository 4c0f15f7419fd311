"""What ORT writes beside a context binary into its EPContext model."""

from __future__ import annotations

from pathlib import Path

from harness.artefacts.artefact import ArtefactError
from harness.artefacts.open import open_artefact
from harness.contexts.compiler import CompileError


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
