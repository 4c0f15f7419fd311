"""What a record says of the libraries: which they were, and what preflight found in them."""

from __future__ import annotations

from harness.results.parts import Part, Text
from harness.runtimes.findings import Severity


class PreflightRecord(Part):
    """What preflight found wrong or doubtful before the case ran; see docs/preflight.md."""

    code: Text
    severity: Severity
    files: tuple[Text, ...] = ()
    explanation: Text
    fix: Text
    thread: Text | None = None


class RuntimeRecord(Part):
    """The libraries a case ran with: `build_id` is what they say of themselves.

    `contexts_by` is the QNN version of the compiler whose contexts the case took, null if it took
    none.
    """

    qnn: Text
    build_id: Text | None = None
    source: Text
    ort: Text | None = None
    contexts_by: Text | None = None
