"""ONNX Runtime on a device made ready: what a test builds its plans of."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from harness.contexts.compiler.compile_jobs import compile_options
from harness.contexts.context.session_plan import DeployedModel
from harness.ground.facts.backends import BACKEND_LIBRARIES
from harness.libraries.runtimes.deployed import DeployedRuntime
from harness.libraries.runtimes.ort import PLUGIN, ort_library_of
from harness.probe.ort_plan import (
    QNN_EP,
    Provider,
    ort_end,
    ort_env,
    ort_load,
    ort_placement,
    ort_register_ep,
    ort_run,
    ort_session,
    ort_session_free,
)
from harness.probe.plan import Plan, Rounds, Settings, Step


@dataclass(frozen=True)
class OrtOnDevice:
    """ORT, its QNN provider and a QNN backend on a device.

    `backend` is the path of the backend library; `htp_arch` is that of the device, None where
    the backend has none. `plugin` is None where ORT has the provider built in.
    """

    runtime: DeployedRuntime
    library: str
    plugin: str | None
    backend: str
    htp_arch: int | None

    @property
    def tells_placement(self) -> bool:
        parts = (self.runtime.runtime.ort_version or "").split(".")
        return [int(part) if part.isdecimal() else 0 for part in parts[:2]] >= [1, 24]

    @property
    def wants_fallback(self) -> bool:
        """Whether the provider takes this backend only if nodes may go to ORT's own CPU provider.

        It does so with QNN's CPU backend, however many of the nodes that takes.
        """
        return posixpath.basename(self.backend) == BACKEND_LIBRARIES["cpu"]

    def provider(self, options: Mapping[str, str] | None = None) -> Provider:
        """The QNN provider on this device's backend; `options` are added to what it needs."""
        needed = {"backend_path": self.backend}
        if self.htp_arch is not None:
            needed |= compile_options(self.htp_arch)
        given = needed | dict(options or {})
        if self.plugin is None:
            return Provider("QNN", given, builtin=True)
        return Provider(options=given)

    def plan(
        self,
        steps: Iterable[Step],
        sessions: int,
        settings: Settings = Settings(),  # noqa: B008 - it is frozen
        *,
        causes: bool = True,
    ) -> Plan:
        """A plan that opens ORT, does these steps and lets go of `sessions` sessions and of ORT.

        `causes` as in `ort_env`: a plan whose times count goes without.
        """
        register = () if self.plugin is None else (ort_register_ep(self.plugin),)
        return Plan(
            (
                ort_load(self.library),
                ort_env(causes=causes),
                *register,
                *steps,
                Step("cleanup"),
                *(ort_session_free(number) for number in range(sessions)),
                *(ort_end() if self.plugin else ort_end(None)),
            ),
            settings,
        )

    def session(
        self,
        number: int,
        model: str,
        *,
        options: Mapping[str, str] | None = None,
        provider: Provider | None = None,
        fallback: bool = False,
    ) -> tuple[Step, ...]:
        """Creates a session on QNN, and fails if a single node went elsewhere.

        With `fallback` nodes may go elsewhere, which is only told.
        """
        chosen = provider or self.provider()
        allowed = fallback or self.wants_fallback
        created = ort_session(number, model, chosen, options=options, fallback=allowed)
        return created, ort_placement(number, whole=None if fallback else QNN_EP)

    @staticmethod
    def run(number: int, model: DeployedModel, *, repeat: int | Rounds = 1) -> Step:
        """Runs a session with the model's inputs and compares what comes out."""
        return ort_run(
            number,
            inputs=model.inputs,
            expected=model.expected,
            tolerance=model.tolerance,
            repeat=repeat,
        )


def ort_on_device(runtime: DeployedRuntime, backend: str, htp_arch: int | None) -> OrtOnDevice:
    """Where in a deployed runtime ORT's parts are.

    Raises ConfigError if it has no ORT, LibraryMissing if it has not that backend.
    """
    names = {posixpath.basename(file.name) for file in runtime.runtime.files}
    return OrtOnDevice(
        runtime=runtime,
        library=runtime.library(ort_library_of(runtime.runtime)),
        plugin=runtime.library(PLUGIN) if PLUGIN in names else None,
        backend=runtime.library(backend),
        htp_arch=htp_arch,
    )
