"""Hooks by which another package adds to the harness, without a change to it.

An implementation is marked by `@pytest.hookimpl`. It is found in a conftest.py, in a plug-in of
pytest, or in a module that an entry point of the group `qnn_harness` names; commands other than
pytest load the last only. The harness's own parts are added by the same hooks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from harness.core.axes import Engine

hookspec = pluggy.HookspecMarker("pytest")


@hookspec
def qnn_engines() -> Iterable[Engine]:
    """Return engines: what executes the contexts or models of a case."""
    raise NotImplementedError
