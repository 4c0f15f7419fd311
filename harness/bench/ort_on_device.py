"""A user's own ONNX model as ONNX Runtime loads it on a device: with EPContext nodes, or plain."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from harness.core.matrix_axes import BACKEND_LIBRARIES
from harness.models.context_cache import compile_options
from harness.models.session_plan import DeployedModel
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
from harness.runtimes.ort import PLUGIN, ort_library_of
from harness.runtimes.runtime import DeployedRuntime


@dataclass(frozen=True)
class OrtOnDevice:
    """ORT, its QNN provider and a QNN backend on a device.

    `backend` is the path of the backend library; `htp_arch` is that of the device, None where
    the backend has none. `plugin` is None where ORT has the provider built in. `power` is the
    profile that sessions vote for, None without a vote.
    """

    runtime: DeployedRuntime
    library: str
    plugin: str | None
    backend: str
    htp_arch: int | None
    power: str | None = None

    @property
    def reports_placement(self) -> bool:
        parts = (self.runtime.runtime.ort_version or "").split(".")
        return [int(part) if part.isdecimal() else 0 for part in parts[:2]] >= [1, 24]

    @property
    def needs_fallback(self) -> bool:
        """Return whether the provider insists on CPU fallback, as it does for QNN's CPU backend."""
        return posixpath.basename(self.backend) == BACKEND_LIBRARIES["cpu"]

    def provider(self, options: Mapping[str, str] | None = None) -> Provider:
        """Return the QNN provider for this backend; `options` are added to the required ones."""
        needed = {"backend_path": self.backend}
        if self.htp_arch is not None:
            needed |= compile_options(self.htp_arch)
        if self.power is not None:
            needed["htp_performance_mode"] = self.power
        merged = needed | dict(options or {})
        if self.plugin is None:
            return Provider("QNN", merged, builtin=True)
        return Provider(options=merged)

    def plan(
        self,
        steps: Iterable[Step],
        sessions: int,
        settings: Settings = Settings(),  # noqa: B008 - it is frozen
        *,
        causes: bool = True,
    ) -> Plan:
        """Return a plan that opens ORT, does these steps and frees `sessions` sessions and ORT.

        `causes` is as in `ort_env`; a plan that measures times does without.
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
        """Return steps that create a session; without `fallback` all nodes must be on QNN."""
        chosen = provider or self.provider()
        allowed = fallback or self.needs_fallback
        created = ort_session(number, model, chosen, options=options, fallback=allowed)
        return created, ort_placement(number, whole=None if fallback else QNN_EP)

    @staticmethod
    def run(number: int, model: DeployedModel, *, repeat: int | Rounds = 1) -> Step:
        """Return the step that runs a session with the model's inputs and compares the outputs."""
        return ort_run(
            number,
            inputs=model.inputs,
            expected=model.expected,
            tolerance=model.tolerance,
            repeat=repeat,
        )


def ort_on_device(
    runtime: DeployedRuntime, backend: str, htp_arch: int | None, power: str | None = None
) -> OrtOnDevice:
    """Return ORT's parts in a deployed runtime. Raises ConfigError, LibraryMissing."""
    names = {posixpath.basename(file.name) for file in runtime.runtime.files}
    return OrtOnDevice(
        runtime=runtime,
        library=runtime.library(ort_library_of(runtime.runtime)),
        plugin=runtime.library(PLUGIN) if PLUGIN in names else None,
        backend=runtime.library(backend),
        htp_arch=htp_arch,
        power=power,
    )
