"""What device tests and commands import, for forked.py: whoever imports this has it.

Plug-ins are imported as pytest does it, or it would say that it is too late to rewrite their
assertions. A module that is run as a program, or that most runs do without, is left out.
"""

from __future__ import annotations

import contextlib
import gc
import io
import pkgutil
from importlib import import_module

import pytest

_LEFT_OUT = ("harness.device.labgrid.", "harness.tools.cli.main")

with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    pytest.main(["-VV", "-p", "no:hypothesispytest", "-p", "no:labgrid"])
for module in pkgutil.walk_packages(import_module("harness").__path__, "harness."):
    if not module.name.startswith(_LEFT_OUT):
        import_module(module.name)
import_module("onnx.helper")
import_module("harness.answers.report.pages").template("report.html.j2")
gc.freeze()  # what all forks share is neither looked through nor copied by each
