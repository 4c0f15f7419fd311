"""The two that calculate a model: ONNX Runtime on the CPU, and QNN's HTP as `run` has it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness.contexts import CompileError, Tensor, TensorFiles
from harness.contexts.compiler.compile_jobs import (
    compile_options,
    made_binary,
    read_metadata,
    tensor_order,
)
from harness.contexts.compiler.compiler import CompileJob, InputFile, ReferenceJob, run_jobs
from harness.ground import ConfigError, InfraError, cache_root
from harness.libraries.runtimes.pypi import CompilerHost
from harness.probe import ProbeBuilder
from harness.run import nothing_beside
from harness.search.bisect.case_run import run_case
from harness.search.diverge.network import TensorKind
from harness.verdict import CaseRecord, RunFolder
from harness.verdict.results.run_folder import OUTPUTS

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

    def fed(self) -> dict[str, Stored]:
        """What of the feeds the model takes."""
        return {one.name: self.feeds[one.name] for one in self.model.graph.input}


Calculated = dict[str, Stored] | str
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
                for name, one in question.fed().items()
            ]
            outputs = {name: folder / f"{at}.raw" for at, name in enumerate(question.gives)}
            what = "ONNX Runtime does not compute it on the CPU"
            jobs.append(ReferenceJob(folder.name, what, model, tuple(inputs), outputs))
        failed = run_jobs(self._host, jobs)
        return [
            str(failed[job.job])
            if failed[job.job] is not None
            else _values(question.gives, job.outputs)
            for question, job in zip(questions, jobs, strict=True)
        ]


def _values(gives: Mapping[str, TensorKind], files: Mapping[str, Path]) -> Calculated:
    for name, kind in gives.items():
        if files[name].stat().st_size != kind.size:
            return f"{name} has {files[name].stat().st_size} bytes and not {kind.size}"
    return {name: Stored(files[name], kind) for name, kind in gives.items()}


@dataclass(frozen=True)
class HtpPlace:
    """Where HTP is: a device of a lab, and the architecture of its HTP."""

    lab: Path
    device: str
    htp_arch: int


class Npu:
    """HTP of one QNN version: compiled for a device and run there, as `run` runs a context."""

    def __init__(self, host: CompilerHost, place: HtpPlace, folder: Path) -> None:
        self.name = f"HTP v{place.htp_arch} of QNN {host.qnn_version}"
        self._host, self._place, self._asked = host, place, 0
        self._folder = folder / f"htp-{host.qnn_version}"
        self._folder.mkdir()
        self._probes = ProbeBuilder(cache_root() / "probe")

    def ask(self, questions: Sequence[Calculation]) -> list[Calculated]:
        """The answers, in the same order: all are compiled in one process, and run in one run.

        Raises InfraError if the lab fails, ConfigError for a device that cannot be used.
        """
        self._asked += 1
        folder = self._folder / str(self._asked)
        folder.mkdir()
        answers = self._compiled(questions, folder)
        ready = [at for at, one in enumerate(answers) if not isinstance(one, str)]
        if ready:
            records = self._run(folder, [f"{at}.bin" for at in ready])
            for at in ready:
                answers[at] = self._read(questions[at], records.get(f"{at}.bin"))
        return answers

    def _compiled(self, questions: Sequence[Calculation], folder: Path) -> list[Calculated]:
        """What becomes of each: why it cannot be compiled, or nothing yet."""
        jobs = []
        for at, question in enumerate(questions):
            model = folder / f"{at}.onnx"
            model.write_bytes(question.model.SerializeToString())
            made = folder / f"made{at}"
            made.mkdir()
            options = compile_options(self._place.htp_arch)
            jobs.append(CompileJob(str(at), f"{self.name} refuses it", model, made, options))
        failed = run_jobs(self._host, jobs)
        answers: list[Calculated] = []
        for at, (question, job) in enumerate(zip(questions, jobs, strict=True)):
            try:
                if (refusal := failed[job.job]) is not None:
                    raise refusal
                binary = made_binary(job)
                (metadata,) = read_metadata(self._probes, self._host.system_library, [binary])
                fed = question.fed()
                tensor_order(
                    metadata,
                    job.complaint,
                    {name: one.kind.size for name, one in fed.items()},
                    {name: kind.size for name, kind in question.gives.items()},
                )
            except CompileError as error:
                answers.append(str(error))
                continue
            binary.rename(folder / f"{at}.bin")
            inputs = folder / "inputs" / f"{at}.bin"
            inputs.mkdir(parents=True)
            for name, one in fed.items():
                (inputs / f"{name}.raw").hardlink_to(one.path)
            answers.append({})
        return answers

    def _run(self, folder: Path, files: Sequence[str]) -> dict[str, CaseRecord]:
        place = self._place
        arguments = ["-m", "device", "-n0", "-p", "no:cacheprovider", *nothing_beside(folder)]
        arguments += [f"--lab={place.lab.absolute()}", f"--reports={folder / 'reports'}"]
        arguments += ["--backend=htp", f"--qnn={self._host.qnn_version}"]
        arguments += [f"--device={place.device}", f"--lease-timeout={_LEASE_WAIT_S}"]
        arguments += [f"--contexts-inputs={folder / 'inputs'}", *files]
        end = run_case(arguments, folder / "reports", folder, _RUN_TIMEOUT_S)
        if end.record is None or end.folder is None:
            stopped = end.stopped
            if stopped is not None and stopped.about != "lab":
                raise ConfigError(stopped.text)
            raise self._lost(end.problem if stopped is None else stopped.text)
        self._outputs = end.folder / OUTPUTS
        return {
            str(one.axes.get("workload")): one for one in RunFolder(end.folder).contents().cases
        }

    def _lost(self, problem: str) -> InfraError:
        return InfraError(f"the run on {self._place.device} came to no verdict: {problem}")

    def _read(self, question: Calculation, record: CaseRecord | None) -> Calculated:
        if record is None:
            raise self._lost("it ended before its last case")
        if record.outcome != "passed":
            said = record.error.message if record.error else ""
            if record.cause in ("infra", "harness"):
                raise self._lost(said)
            return f"{self.name}: {record.outcome}: {said}"
        kept: Any = record.measurements["kept_outputs"]
        (told,) = kept.values()
        files = {one["name"]: self._outputs / f"{one['digest']}.raw" for one in told["outputs"]}
        missing = [name for name in question.gives if not (name in files and files[name].exists())]
        if missing:
            return f"its output {missing[0]} was not kept"
        return _values(question.gives, files)


def given_inputs(
    kinds: Mapping[str, TensorKind],
    model: Path,
    given: Path | None,
    made_up: Mapping[str, Any],
    folder: Path,
) -> dict[str, Stored]:
    """The inputs: the files that the user gives, or those made up. Raises ConfigError."""
    import numpy as np

    found = {}
    if given is None:
        for at, (name, kind) in enumerate(kinds.items()):
            path = folder / f"input{at}.raw"
            np.ascontiguousarray(made_up[name]).tofile(path)
            found[name] = Stored(path, kind)
        return found
    tensors = [
        Tensor(name, kind.size, "bool8" if kind.dtype == "|b1" else np.dtype(kind.dtype).name)
        for name, kind in kinds.items()
    ]
    files = TensorFiles(cache_root()).given("inputs", given, tensors, model)
    pairs = zip(kinds.items(), files, strict=True)
    for at, ((name, kind), file) in enumerate(pairs):
        own = folder / f"input{at}.raw"
        shutil.copyfile(file, own)
        found[name] = Stored(own, kind)
    return found
