"""The compiler: compile_worker.py in its own process, with the libraries of one QNN version.

A refusal, a crash or an endless loop there is the result of one job, and of no other.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, ClassVar, Final

from harness.core.bounded_json import parse_json
from harness.core.deadline import Deadline
from harness.core.errors import Cause, HarnessError, InfraError
from harness.core.files import read_bounded, scratch_folder
from harness.core.guarded_process import spawn_guarded
from harness.runtimes.pypi import CompilerHost

WORKER: Final = Path(__file__).with_name("compile_worker.py")
START_TIMEOUT_S: Final = 60.0
"""For starting the worker."""

JOB_S: Final = 40.0
"""Processor time of a job's busiest thread; neither a busy computer nor many threads use it up."""

BYTES_A_SECOND: Final = 1 << 20
"""A job has a second more for each of so many bytes of its model; 128 MB of weights take 1.5 s."""

WAIT_S: Final = 400.0
"""Wall time of a job beyond its processor time; exceeding it is no verdict."""

_NOT_ITS_OWN: Final = {
    -signal.SIGALRM: "it did not finish and used little CPU time: this computer is too busy, or "
    "the compiler hangs",
    -signal.SIGKILL: "another process or the kernel killed it, as when memory runs out",
    **dict.fromkeys(
        (-signal.SIGTERM, -signal.SIGINT), "it was terminated by a signal from outside"
    ),
}
"""Endings of a job that say nothing of the compiler."""

_MARK = "@qnn-harness-job:"
_KEPT_OUTPUT_BYTES = 512 << 10
_MAX_ANSWER_BYTES = 16 << 20
_KEPT_LINES = 6
_ERROR_LINE = re.compile(r"\[E:|<E>|\bERROR\b|[Ff]ailed")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_PLACES = re.compile(
    r"(?:Load model from .{1,4096}? failed:)?"
    r"\S*/onnxruntime/core/\S+:\d+ .*?\) (?=[A-Z]|\[ONNXRuntimeError\])"
)


class CompileError(HarnessError):
    """The compiler did not make a context: it refused the model, crashed or hung.

    `chain` has the texts of all exceptions, the first cause first (with ORT, the last one is often
    about something else); `first` is that cause without places in ORT's source; `output` is what
    the libraries printed meanwhile (bounded).
    """

    cause: ClassVar[Cause] = "target"
    exit_code: ClassVar[int] = 1

    def __init__(self, complaint: str, *, chain: Sequence[str], output: str = "") -> None:
        self.chain = tuple(chain)
        self.output = output
        self.first = _PLACES.sub("", self.chain[0]).strip() if self.chain else "no reason given"
        telling = [
            line
            for line in output.splitlines()
            if _ERROR_LINE.search(line) and line.rpartition("] ")[2].strip() not in self.first
        ][:_KEPT_LINES]
        super().__init__(
            "\n    ".join([f"{complaint}: {self.first[:600]}", *(t[:300] for t in telling)])
        )


@dataclass(frozen=True)
class CompileJob:
    """Compiles `model` (a file) to one context binary in `folder`, which must be empty.

    `job` is its name, `complaint` the message if it fails. With `fallback` nodes that QNN refuses
    stay beside the context. `others` are models that the context has graphs of, too: graphs share
    weights that they have in common.
    """

    job: str
    complaint: str
    model: Path
    folder: Path
    options: Mapping[str, str]
    fallback: bool = False
    others: tuple[Path, ...] = ()

    def request(self, host: CompilerHost) -> dict[str, Any]:
        """Return the job as the worker reads it."""
        return {
            "id": self.job,
            "kind": "compile",
            "model": self.model,
            "others": self.others,
            "provider_options": {"backend_path": str(host.backend), **self.options},
            "session_options": {
                "ep.context_enable": "1",
                "ep.context_embed_mode": "0",
                "ep.context_file_path": str(self.folder / "context.onnx"),
                "session.disable_cpu_ep_fallback": "0" if self.fallback else "1",
            },
        }


@dataclass(frozen=True)
class InputFile:
    """An input of a reference job: raw values in a file, their numpy dtype, the shape."""

    name: str
    path: Path
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ReferenceJob:
    """Computes a model's outputs with ORT on the CPU, into a raw file for each name."""

    job: str
    complaint: str
    model: Path
    inputs: tuple[InputFile, ...]
    outputs: Mapping[str, Path]

    def request(self, host: CompilerHost) -> dict[str, Any]:
        """Return the job as the worker reads it."""
        del host
        return {"id": self.job, "kind": "reference", **asdict(self)}


Job = CompileJob | ReferenceJob


def seconds_for(model: Path) -> float:
    """Return how long a thread may compute with a model before it counts as endless."""
    size = model.stat().st_size if model.exists() else 0  # the job reports a missing file
    return JOB_S + size / BYTES_A_SECOND


def run_jobs(host: CompilerHost, jobs: Sequence[Job]) -> dict[str, CompileError | None]:
    """Run all jobs, one after the other; return {job: None, or its error}.

    Raises InfraError if the compiler's process cannot be used, ends early, or waited for too long.
    """
    if not jobs:
        return {}
    with scratch_folder() as folder, tempfile.TemporaryFile() as out:
        answers = folder / "answers.jsonl"
        seconds = [seconds_for(job.model) for job in jobs]
        limits = [{"most_s": most_s, "most_wall_s": most_s + WAIT_S} for most_s in seconds]
        request = {
            "answers": answers,
            "mark": _MARK,
            "ort_root": host.ort_root,
            "plugin": host.plugin,
            "jobs": [job.request(host) | limit for job, limit in zip(jobs, limits, strict=True)],
        }
        command = worker_command(WORKER, folder, request)
        environment = own_environment(PYTHONPATH=f"{host.ort_root}{os.pathsep}{host.qnn_root}")
        deadline = Deadline(START_TIMEOUT_S + sum(seconds) + WAIT_S * len(jobs))
        with spawn_guarded(command, env=environment, cwd=folder, stdout=out, stderr=out) as worker:
            code = worker.wait(deadline)
        output, events = output_text(out), _events(answers)
    results = results_of(host, jobs, events, output)
    if len(results) < len(jobs):
        end = f"did not end within {deadline.seconds:g} s" if code is None else f"exit code {code}"
        last = output.strip().splitlines()[-1:] or ["no output"]
        raise InfraError(f"the compiler's process failed ({end}): {last[0][:500]}")
    return results


def results_of(
    host: CompilerHost, jobs: Sequence[Job], events: Sequence[Mapping[str, Any]], output: str
) -> dict[str, CompileError | None]:
    """Return the results of the jobs by the worker's answers, without unfinished ones (pure).

    Raises InfraError if the worker found the libraries unusable, or a job only waited.
    """
    complaints = {job.job: job.complaint for job in jobs}
    results: dict[str, CompileError | None] = {}
    for event in events:
        kind, job, errors = event.get("event"), str(event.get("job")), event.get("errors")
        chain = list(map(str, errors)) if isinstance(errors, list) else []
        if kind == "unusable":
            raise InfraError(
                f"ORT {host.ort_version} cannot use the plug-in of QNN {host.qnn_version}: "
                + " <- ".join(chain[::-1])[:1000]
            )
        if job not in complaints or job in results:
            continue
        if kind == "made":
            results[job] = None
        elif kind == "died" and event.get("code") in _NOT_ITS_OWN:
            raise InfraError(f"{complaints[job]}: {_NOT_ITS_OWN[event['code']]}")
        elif kind in ("failed", "died"):
            code = event.get("code")
            if kind == "died" and code == -signal.SIGPROF:
                chain = [without_end(event["most_s"])]
            elif kind == "died" and isinstance(code, int) and code < 0:
                chain = [f"the compiler crashed with signal {-code}"]
            elif kind == "died":
                chain = [f"the compiler ended its process with exit code {code}"]
            results[job] = CompileError(complaints[job], chain=chain, output=output_of(output, job))
    return results


def without_end(seconds: float) -> str:
    """Return the message for a model that was ended after so many seconds of computing."""
    return f"it did not finish within {seconds:.0f} s of CPU time"


def output_of(output: str, job: str) -> str:
    """Return the part of the libraries' output that was written during one job (pure)."""
    return output.partition(f"{_MARK}{job}\n")[2].partition(_MARK)[0].strip()


def _events(path: Path) -> list[dict[str, Any]]:
    try:
        lines = read_bounded(path, _MAX_ANSWER_BYTES).split(b"\n")
    except FileNotFoundError:
        return []
    # the last piece is empty, or a line that was cut off
    return [event for event in map(parse_json, lines[:-1]) if isinstance(event, dict)]


def output_text(file: IO[bytes], most_bytes: int = _KEPT_OUTPUT_BYTES) -> str:
    """Return the end of a compiler process's output, without colours."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - most_bytes))
    return _COLOURS.sub("", file.read().decode("utf-8", "replace"))


def own_environment(**more: str) -> dict[str, str]:
    """Return our environment with `more`, without variables that change what a process loads."""
    dropped = ("LD_LIBRARY_PATH", "ADSP_LIBRARY_PATH", "PYTHONHOME", "PYTHONSTARTUP")
    inherited = {name: value for name, value in os.environ.items() if name not in dropped}
    return inherited | more


def worker_command(worker: Path, folder: Path, request: Mapping[str, object]) -> list[str]:
    """Write a request into `folder`; return the command that runs a worker with it."""
    file = folder / "request.json"
    file.write_text(json.dumps(request, default=str))
    # -P: the worker's own folder is not searched for modules
    return [sys.executable, "-P", "-B", str(worker), str(file)]
