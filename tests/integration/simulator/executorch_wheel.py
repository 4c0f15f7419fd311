"""SimpleADB out of ExecuTorch's wheel, without torch.

To import its module takes torch and torchao, which are gigabytes. Its own text is run instead; what
it wants of torch and of ExecuTorch's other modules (a tensor, two tables) are stand-ins.
"""

from __future__ import annotations

import ast
import logging
import os
import subprocess
import sys
import tempfile
import typing
import zipfile
from enum import Enum
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from harness.core.cache import cache_root
from harness.runtimes.pypi import WheelCache, WheelRequest

WHEEL: Final = WheelRequest("executorch", "1.5.1", "manylinux_2_28_x86_64", "3.11", "cp311")
MODULE: Final = "executorch/backends/qualcomm/export_utils.py"
_WANTED: Final = {"SimpleADB", "generate_inputs"}


class _Tensor:
    """Not torch's: floats that can be written to a file."""

    def __init__(self, values: object) -> None:
        self._values = np.asarray(values, dtype=np.float32)

    def detach(self) -> _Tensor:
        return self

    def numpy(self) -> Any:
        return self._values


_Backend = Enum("_Backend", ["kHtpBackend", "kGpuBackend", "kLpaiBackend"])


def simple_adb_class() -> Any:
    """The class as ExecuTorch wrote it; fetches its wheel (19 MB) into the cache once."""
    wheel = WheelCache(cache_root() / "wheels").fetch(WHEEL)
    with zipfile.ZipFile(wheel.path) as archive:
        tree = ast.parse(archive.read(MODULE))
    tree.body = [node for node in tree.body if getattr(node, "name", None) in _WANTED]
    assert len(tree.body) == len(_WANTED), "another version of ExecuTorch has them elsewhere"
    names: dict[str, Any] = {
        **{name: getattr(typing, name) for name in ("Callable", "Optional", "Set", "Union")},
        "logging": logging,
        "os": os,
        "subprocess": subprocess,
        "sys": sys,
        "tempfile": tempfile,
        "np": np,
        "QnnConfig": SimpleNamespace,
        "torch": SimpleNamespace(Tensor=_Tensor, tensor=_Tensor),
        "QnnExecuTorchBackendType": _Backend,
        "get_soc_to_htp_arch_map": lambda: {"SM8550": 73},
        "get_soc_to_lpai_hw_ver_map": dict,
    }
    exec(compile(tree, MODULE, "exec"), names)
    return names["SimpleADB"]


HTP: Final = _Backend.kHtpBackend
