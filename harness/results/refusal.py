"""Whether a failure answers what was asked, or would have met any request (pure)."""

from __future__ import annotations

from typing import Final

from harness.results.record import ErrorRecord

# Kinds of failures of the DSP, its process, its memory, or the libraries. What a request that
# cannot be granted gets is none of them.
_OF_ANY_REQUEST: Final = frozenset(
    {
        "dsp-restarted",
        "pd-died",
        "pd-exhausted",
        "no-further-pd",
        "no-dma-handles",
        "not-mapped",
        "killed-for-memory",
        "fastrpc-denied",
        "unknown-soc",
        "no-fastrpc",
        "skel-not-found",
        "opencl-driver",
        "mixed-libraries",
        "two-copies",
        "library-not-loaded",
        "newer-context",
        "other-htp-arch",
        "damaged-binary",
        "undefined-code",
    }
)


def is_of_any_request(error: ErrorRecord | None) -> bool:
    """Whether a failure is of a kind that says nothing of what was asked."""
    diagnosis = None if error is None else error.diagnosis
    return diagnosis is not None and diagnosis.id in _OF_ANY_REQUEST
