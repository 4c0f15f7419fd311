"""What calculates a model: ONNX Runtime on the CPU, and backends of QNN as `run` has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness.contexts.compiler.compile_jobs import (
    compile_options,
    made_binary,
    read_metadata,
    tensor_order,
)
from harness.contexts.compiler.compiler import (
    CompileError,
    CompileJob,
    InputFile,
    ReferenceJob,
    run_jobs,
)
from harness.ground.errors import ConfigError, InfraError
from harness.ground.files.cache import cache_root
from harness.libraries.runtimes.pypi import CompilerHost
from harness.probe.build import ProbeBuilder
from harness.run.bench.session import SESSION_OUTPUTS
from harness.run.pytest_plugin.own_contexts import nothing_beside
from harness.search.bisect.case_run import run_case
from harness.search.diverge.network import TensorKind
from harness.verdict.failure.refused_nodes import messages_of, refusal_text, refused_nodes
from harness.verdict.results.drift import KEPT
from harness.verdict.results.record import CaseRecord
from harness.verdict.results.run_folder import OUTPUTS, RunFolder

if TYPE_CHECKING:
    import numpy as np
    import onnx

_RUN_TIMEOUT_S: Final = 1800.0
_LEASE_WAIT_S: Final = 600


@dataclass(frozen=True)
class Stored:
    """A tensor in a file of raw values."""

    path: Path
    kind: TensorKind

    def array(self) -> np.ndarray[Any, Any]:
        """It, read where it is looked at."""
        import numpy as np

        return np.memmap(self.path, self.kind.dtype, "r", shape=self.kind.shape)


@dataclass(frozen=True)
class Calculation:
    """A model to be calculated: what goes in and what comes out, by name."""

    model: onnx.ModelProto
    feeds: Mapping[str, Stored]
    gives: Mapping[str, TensorKind]


@dataclass(frozen=True)
class NotCalculated:
    """Why nothing was calculated; `nodes` has why of each node that is named as refused."""

    text: str
    nodes: Mapping[str, str] = field(default_factory=dict)


Calculated = dict[str, Stored] | NotCalculated
"""The outputs, or why there are none."""


class Cpu:
    """ONNX Runtime on the CPU, in a process of its own."""

    name = "ONNX Runtime on the CPU"

    def __init__(self, host: CompilerHost, folder: Path) -> None:
        self._host, self._folder, self._asked = host, folder, 0

    def ask(self, questions: Sequence[Calculation]) -> list[Calculated]:
        """The answers, in the same order. Raises InfraError."""
        jobs = []
        for question in questions:
            self._asked += 1
            folder = self._folder / f"cpu{self._asked}"
            folder.mkdir()
            model = folder / "model.onnx"
            model.write_bytes(question.model.SerializeToString())
            inputs = [
                InputFile(name, one.path, one.kind.dtype, one.kind.shape)
                for name, one in question.feeds.items()
            ]
            outputs = {name: folder / f"{at}.raw" for at, name in enumerate(question.gives)}
            what = "ONNX Runtime does not compute it on the CPU"
            jobs.append(ReferenceJob(folder.name, what, model, tuple(inputs), outputs))
        failed = run_jobs(self._host, jobs)
        return [
            NotCalculated(str(error))
            if (error := failed[job.job]) is not None
            else _values(question.gives, job.outputs)
            for question, job in zip(questions, jobs, strict=True)
        ]


def _values(gives: Mapping[str, TensorKind], files: Mapping[str, Path]) -> Calculated:
    for name, kind in gives.items():
        size = files[name].stat().st_size if name in files and files[name].exists() else 0
        if size != kind.size:
            return NotCalculated(f"of {name} there are {size} bytes and not {kind.size}")
    return {name: Stored(files[name], kind) for name, kind in gives.items()}


@dataclass(frozen=True)
class HtpPlace:
    """Where QNN runs: a device of a lab, and the architecture of its HTP."""

    lab: Path
    device: str
    htp_arch: int


class Qnn:
    """A backend of one QNN version on a device, run as `run` does it.

    HTP runs contexts that are compiled for it here, any other one a session of ONNX Runtime.
    """

    def __init__(self, host: CompilerHost, place: HtpPlace, folder: Path, backend: str) -> None:
        processor = (
            f"HTP v{place.htp_arch}" if backend == "htp" else f"the {backend.upper()} backend"
        )
        self.name = f"{processor} of QNN {host.qnn_version}"
        self._host, self._place, self._asked, self.backend = host, place, 0, backend
        self._folder = folder / f"{backend}-{host.qnn_version}"
        self._folder.mkdir()
        self._probes = ProbeBuilder(cache_root() / "probe")

    def ask(self, questions: Sequence[Calculation]) -> list[Calculated]:
        """The answers, in the same order: all are compiled in one process, and run in one run.

        Raises InfraError if the lab fails, ConfigError for a device that cannot be used.
        """
        self._asked += 1
        folder = self._folder / str(self._asked)
        folder.mkdir()
        suffix = "bin" if self.backend == "htp" else "onnx"
        files = {f"{at}.{suffix}": one for at, one in enumerate(questions)}
        for at, question in enumerate(questions):
            (folder / f"{at}.onnx").write_bytes(question.model.SerializeToString())
        answers: dict[str, Calculated] = {}
        if self.backend == "htp":
            answers |= self._compiled(files, folder)
        ready = [file for file in files if file not in answers]
        for file in ready:
            inputs = folder / "inputs" / file
            inputs.mkdir(parents=True)
            for name, one in files[file].feeds.items():
                (inputs / f"{name}.raw").hardlink_to(one.path)
        records, outputs = self._run(folder, ready) if ready else ({}, folder)
        answers |= {file: self._read(files[file], records.get(file), outputs) for file in ready}
        return [answers[file] for file in files]

    def _compiled(self, files: Mapping[str, Calculation], folder: Path) -> dict[str, NotCalculated]:
        """Makes the files, and says which could not be made."""
        jobs, refusals = [], {}
        for file in files:
            made = folder / "made" / file
            made.mkdir(parents=True)
            model, options = folder / f"{made.stem}.onnx", compile_options(self._place.htp_arch)
            jobs.append(CompileJob(file, f"{self.name} refuses it", model, made, options))
        failed = run_jobs(self._host, jobs)
        for job in jobs:
            try:
                if (refusal := failed[job.job]) is not None:
                    raise refusal
                binary, asked = made_binary(job), files[job.job]
                (metadata,) = read_metadata(self._probes, self._host.system_library, [binary])
                fed = {name: one.kind.size for name, one in asked.feeds.items()}
                gives = {name: kind.size for name, kind in asked.gives.items()}
                tensor_order(metadata, job.complaint, fed, gives)
                binary.rename(folder / job.job)
            except CompileError as error:
                nodes = refused_nodes(messages_of(error.output))
                text = refusal_text(nodes, {}, job.complaint) if nodes else str(error)
                why = {one.name: one.reason or job.complaint for one in nodes}
                refusals[job.job] = NotCalculated(text, why)
        return refusals

    def _run(self, folder: Path, files: Sequence[str]) -> tuple[dict[str, CaseRecord], Path]:
        """Runs files; their records by name, and where their outputs lie."""
        place = self._place
        arguments = ["-m", "device", "-n0", "-p", "no:cacheprovider", *nothing_beside(folder)]
        arguments += [f"--qnn-lab={place.lab.absolute()}", f"--qnn-reports={folder / 'reports'}"]
        engine = "qnn" if self.backend == "htp" else "ort"
        arguments += [f"--qnn-backend={self.backend}", f"--qnn-engine={engine}"]
        arguments += [f"--qnn-version={self._host.qnn_version}"]
        arguments += [f"--qnn-device={place.device}", f"--qnn-lease-timeout={_LEASE_WAIT_S}"]
        arguments += [f"--qnn-contexts-inputs={folder / 'inputs'}", *files]
        end = run_case(arguments, folder / "reports", folder, _RUN_TIMEOUT_S)
        if end.record is None or end.folder is None:
            stopped = end.stopped
            if stopped is not None and stopped.about != "lab":
                raise ConfigError(stopped.text)
            raise self._lost(end.problem if stopped is None else stopped.text)
        cases = RunFolder(end.folder).contents().cases
        return {str(one.axes.get("workload")): one for one in cases}, end.folder / OUTPUTS

    def _lost(self, problem: str) -> InfraError:
        return InfraError(f"the run on {self._place.device} came to no verdict: {problem}")

    def _read(self, question: Calculation, record: CaseRecord | None, outputs: Path) -> Calculated:
        if record is None:
            raise self._lost("it ended before its last case")
        if record.outcome != "passed":
            said = record.error.message if record.error else ""
            if record.cause in ("infra", "harness"):
                raise self._lost(said)
            if record.outcome == "unsupported" and self.backend != "htp":
                raise ConfigError(f"{self.name}: {said}", field="--against")
            rows: Any = record.measurements.get("nodes") or ()
            why = {one["node"]: one["reason"] for one in rows if one["reason"]}
            return NotCalculated(f"{self.name}: {record.outcome}: {said}", why)
        if self.backend == "htp":
            contexts: Any = record.measurements.get(KEPT)
            (kept,) = contexts.values()
            names = {one["name"]: f"{one['digest']}.raw" for one in kept["outputs"]}
        else:
            told: Any = record.measurements.get(SESSION_OUTPUTS)
            names = told or {}
        files = {name: outputs / file for name, file in names.items()}
        return _values(question.gives, files)
