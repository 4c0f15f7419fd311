"""The probe alone, which loads contexts by QNN's own API."""

from __future__ import annotations

from harness.core.engine import DEFAULT_ENGINE, Engine


class Probe(Engine):
    """The probe, with contexts that a compiler made or that files hold."""

    name = DEFAULT_ENGINE
    title = "the probe"
    test = "test_contexts"
    suite = "run_contexts"
    takes_contexts = True
    takes_context_options = True
    has_compilers = True
