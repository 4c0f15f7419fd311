"""Steps that drive ONNX Runtime: its library, EPs, sessions, inference (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from harness.ground.errors import ConfigError
from harness.probe.plan import Rounds, Step, executed_fields, given, numbered

QNN_EP: Final = "QNNExecutionProvider"
"""What ORT calls Qualcomm's execution provider, built in or from a plug-in library."""
CPU_EP: Final = "CPUExecutionProvider"


@dataclass(frozen=True)
class Provider:
    """The execution provider of a session and its options.

    `ep` is the name of an EP that a plug-in library brought, or, with `builtin`, the short name
    under which ORT knows one of its own (`QNN`). `device` is its number among the EP's devices.
    """

    ep: str = QNN_EP
    options: Mapping[str, str] = field(default_factory=dict)
    builtin: bool = False
    device: int = 0


def ort_load(library: str) -> Step:
    """Opens ORT's library (a path on the device)."""
    return Step("ort-load", {"lib": library})


def ort_env(*, causes: bool = True) -> Step:
    """Makes ORT's environment; what ORT logs from here on becomes events.

    `causes`: ORT logs everything, because the QNN EP passes on the backend's errors at the lowest
    level only. What is as severe as the plan's log level is kept. It costs time: a run of 0.15 ms
    took twice as long with it. Without, ORT itself logs no more than the plan's level.
    """
    return Step("ort-env", {"severity": "0"} if causes else {})


def ort_register_ep(library: str, name: str = QNN_EP) -> Step:
    """Registers a plug-in library, which must offer a device of the EP `name`."""
    return Step("ort-register-ep", {"name": name, "lib": library})


def ort_session(
    session: int,
    model: str,
    provider: Provider | None = None,
    *,
    options: Mapping[str, str] | None = None,
    threads: int = 1,
    fallback: bool = False,
    record_placement: bool = True,
) -> Step:
    """Creates session number `session` from a model file; without a provider it is the CPU's.

    `options` are ORT's session options by their keys. Unless `fallback`, a session with a
    provider refuses to give nodes to the CPU. `record_placement` lets `ort_placement` ask where
    nodes went. `threads` is the number of ORT's threads within one node, 0 its own choice. Raises
    ConfigError for a key with an equals sign.
    """
    given = dict(options or {})
    if provider is not None and not fallback:
        given.setdefault("session.disable_cpu_ep_fallback", "1")
    if record_placement:
        given.setdefault("session.record_ep_graph_assignment_info", "1")
    fields = {"context": str(session), "file": model, "threads": str(threads)}
    if provider is not None:
        fields["ep"] = f"builtin:{provider.ep}" if provider.builtin else provider.ep
        fields["device"] = str(provider.device)
        fields |= _pairs("provider", provider.options)
    return Step("ort-session", fields | _pairs("session", given))


def ort_placement(session: int, *, whole: str | None = None) -> Step:
    """Asks which EP got which nodes; with `whole` it fails unless that EP got them all."""
    return Step("ort-placement", given(context=session, whole=whole))


def ort_run(
    session: int,
    *,
    inputs: Iterable[str] = (),
    expected: Iterable[str | None] = (),
    saved: Iterable[str | None] = (),
    tolerance: float = 0.0,
    repeat: int | Rounds = 1,
) -> Step:
    """Runs a session `repeat` times with inputs from files, as `plan.execute` does a graph."""
    files = executed_fields(inputs, expected, saved, tolerance, repeat)
    return Step("ort-run", given(context=session) | files)


def ort_session_free(session: int) -> Step:
    """Releases a session if there is one."""
    return Step("ort-session-free", {"context": str(session)})


def ort_end(name: str | None = QNN_EP) -> tuple[Step, ...]:
    """Lets go of the plug-in library registered as `name` (None: there is none) and of ORT."""
    unregister = () if name is None else (Step("ort-unregister-ep", {"name": name}),)
    return (*unregister, Step("ort-env-free"))


def dump_options(path: str, *, embed: bool) -> dict[str, str]:
    """Session options that make ORT write the compiled model to `path`.

    `embed`: the context binary goes into the model, else into a file beside it.
    """
    return {
        "ep.context_enable": "1",
        "ep.context_file_path": path,
        "ep.context_embed_mode": "1" if embed else "0",
    }


def _pairs(kind: str, options: Mapping[str, str]) -> dict[str, str]:
    for key in options:
        if not key or "=" in key:
            raise ConfigError(f"not the name of an option: {key!r}", field=kind)
    return numbered(kind, (f"{key}={value}" for key, value in options.items()))
