"""The backends of QNN that are tested, and the library that each is."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, get_args

Backend = Literal["htp", "gpu", "cpu"]
BACKENDS: Final[tuple[Backend, ...]] = get_args(Backend)

BACKEND_LIBRARIES: Final[Mapping[str, str]] = MappingProxyType(
    {"htp": "libQnnHtp.so", "gpu": "libQnnGpu.so", "cpu": "libQnnCpu.so"}
)
RPC_LIBRARY: Final = "libcdsprpc.so"
"""The library by which the HTP's stubs reach the DSP: the device's own, which is never pushed."""


def backend_of(name: str) -> Backend | None:
    """The backend of that name; None if there is none."""
    return next((backend for backend in BACKENDS if backend == name), None)
