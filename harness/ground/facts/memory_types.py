"""What the QNN documentation says of the memory that a context's tensors are prepared for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, get_args

TensorMemory = Literal["raw", "memhandle"]
TENSOR_MEMORIES: Final[tuple[TensorMemory, ...]] = get_args(TensorMemory)


@dataclass(frozen=True)
class Documented:
    """When I/O is allocated, and whether it is copied at each inference."""

    at_load: bool
    at_first_inference: bool
    copied: bool


DOCUMENTED: Final[Mapping[tuple[TensorMemory, TensorMemory], Documented]] = MappingProxyType(
    {
        ("raw", "raw"): Documented(at_load=True, at_first_inference=False, copied=True),
        ("raw", "memhandle"): Documented(True, at_first_inference=False, copied=False),
        ("memhandle", "raw"): Documented(False, at_first_inference=True, copied=True),
        ("memhandle", "memhandle"): Documented(False, False, copied=False),
    }
)
"""Keyed by how a context was prepared and how it is executed."""
