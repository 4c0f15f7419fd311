"""The program that compiles contexts and computes references: run by compiler.py.

    python -P compile_worker.py REQUEST.json

Its only imports are numpy and the onnxruntime on PYTHONPATH. Every job runs in a fork of its own,
for two reasons. A crash or a hang fails only that job. And a binary does not depend on the jobs
before it: tensor ids count up in a process. Answers are written, one JSON object per line and
flushed, to the file that the request names; stdout and stderr belong to the libraries.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import select
import signal
import sys
import tempfile
from pathlib import Path
from typing import IO, Any, NoReturn

EP_NAME = "qnn"
MAX_LOG_BYTES = 64 << 20
LOOK_S = 0.5


def main(request_path: str) -> None:
    """Run the jobs of a request, and end the process."""
    request = json.loads(Path(request_path).read_text())
    with open(request["answers"], "w", encoding="utf-8") as answers:
        _run_jobs(request, answers)
    _exit_at_once()


def _run_jobs(request: dict[str, Any], answers: IO[str]) -> None:
    try:
        devices = _register(request)
    except Exception as error:
        _emit(answers, event="unusable", errors=_chain(error))
        return
    endless: set[int] = set()
    for job in request["jobs"]:
        # models that differ in their inputs only are the same file
        model = os.stat(job["model"]).st_ino if os.path.exists(job["model"]) else 0
        _emit(answers, event="begin", job=job["id"])
        print(f"{request['mark']}{job['id']}", file=sys.stderr, flush=True)
        # of a model that did not end once, nothing else is tried
        code = -signal.SIGPROF if model in endless else _run_in_fork(job, devices, answers)
        if code != 0:
            _emit(answers, event="died", job=job["id"], code=code, most_s=job["most_s"])
        if code == -signal.SIGPROF:
            endless.add(model)


def _run_in_fork(job: dict[str, Any], devices: list[Any], answers: IO[str]) -> int:
    """Run a job in a fork, and return its exit code.

    Unhandled signals end a job that does not finish: SIGPROF one with a thread that computes for
    too long, SIGALRM one that waits, be it for a processor of a busy computer.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        # A model may ask for a tensor of any size: the limit makes that an error of the job, so
        # that the kernel does not have to kill a process.
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
        signal.setitimer(signal.ITIMER_REAL, job["most_wall_s"])
        _run_job(job, devices, answers)
        _exit_at_once()
    os.close(write_end)  # now only the child holds it: when that ends, the other end is readable
    with os.fdopen(read_end):
        while (result := os.waitpid(child, os.WNOHANG)) == (0, 0):
            has_ended = select.select([read_end], [], [], LOOK_S)[0]
            if not has_ended and busiest_s(child) > job["most_s"]:
                os.kill(child, signal.SIGPROF)
    return os.waitstatus_to_exitcode(result[1])


def busiest_s(process: int) -> float:
    """Return the processor time of the busiest thread of a process."""
    ticks = [0]
    for thread in Path(f"/proc/{process}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            fields = thread.read_text().rpartition(")")[2].split()
            ticks.append(int(fields[11]) + int(fields[12]))
    return max(ticks) / os.sysconf("SC_CLK_TCK")


def _run_job(job: dict[str, Any], devices: list[Any], answers: IO[str]) -> None:
    try:
        if job["kind"] == "reference":
            _reference(job)
        else:
            _compile(job, devices)
    except Exception as error:
        _emit(answers, event="failed", job=job["id"], errors=_chain(error))
        if "fallback to CPU EP" in str(error):
            _print_refusals(job, devices)
    else:
        _emit(answers, event="made", job=job["id"])


def _exit_at_once() -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _register(request: dict[str, Any]) -> list[Any]:
    import onnxruntime

    root = Path(request["ort_root"]).resolve()
    if root not in Path(onnxruntime.__file__).resolve().parents:
        raise RuntimeError(f"onnxruntime came from {onnxruntime.__file__}, not from {root}")
    if all(job["kind"] == "reference" for job in request["jobs"]):
        return []
    onnxruntime.register_execution_provider_library(EP_NAME, request["plugin"])
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == EP_NAME]
    if not devices:
        raise RuntimeError("the QNN plug-in offers no device")
    return devices[:1]


def _compile(job: dict[str, Any], devices: list[Any]) -> None:
    """Compile one model, or several into one context: the last session writes that."""
    import onnxruntime

    sessions = []
    models = [job["model"], *job["others"]]
    for number, path in enumerate(models, 1):
        options = onnxruntime.SessionOptions()
        entries = {**job["session_options"]}
        if len(models) > 1:
            entries["ep.share_ep_contexts"] = "1"
            entries["ep.stop_share_ep_contexts"] = str(int(number == len(models)))
            entries["ep.context_file_path"] += f".{number}.onnx"
        for key, value in entries.items():
            options.add_session_config_entry(key, value)
        options.add_provider_for_devices(devices, job["provider_options"])
        # Passed as bytes: ORT puts a hash of the path into the graph's name, hence into the binary.
        # Without enable_fallback=False a second attempt on the CPU hides the reason of the first.
        model = Path(path).read_bytes()
        sessions.append(onnxruntime.InferenceSession(model, options, enable_fallback=False))


def _print_refusals(job: dict[str, Any], devices: list[Any]) -> None:
    """Compile again with a verbose log, and print the lines on refused nodes."""
    import onnxruntime

    with tempfile.TemporaryFile() as log:
        stderr_copy = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            onnxruntime.set_default_logger_severity(0)
            without_context = {**job["session_options"], "ep.context_enable": "0"}
            _compile({**job, "session_options": without_context}, devices)
        except Exception:
            pass  # it fails as the first attempt did
        finally:
            os.dup2(stderr_copy, 2)
        log.seek(0)
        text = log.read(MAX_LOG_BYTES).decode("utf-8", "replace")
    for message in re.split(r"\n(?=(?:\x1b\[[\d;]*m)?\d{4}-\d\d-\d\d )", text):
        if "Validation FAILED for" in message or "<E>" in message:
            print(message[:4096].strip(), file=sys.stderr)


def _reference(job: dict[str, Any]) -> None:
    import numpy
    import onnxruntime

    feeds = {
        file["name"]: numpy.fromfile(file["path"], file["dtype"]).reshape(file["shape"])
        for file in job["inputs"]
    }
    names, options = list(job["outputs"]), onnxruntime.SessionOptions()

    def computed() -> Any:
        providers = ["CPUExecutionProvider"]
        session = onnxruntime.InferenceSession(job["model"], options, providers=providers)
        return session.run(names, feeds) if names else []  # else it is only loaded

    failed = None
    try:
        outputs = computed()
    except Exception as error:
        failed = error
    if failed is not None:
        # only without optimisation does an error name a node of the model
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        computed()
        raise failed
    for name, output in zip(names, outputs, strict=True):
        numpy.ascontiguousarray(output).tofile(job["outputs"][name])


def _chain(error: BaseException) -> list[str]:
    texts: list[str] = []
    visited: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in visited:
        visited.add(id(current))
        texts.append(f"{type(current).__name__}: {current}"[:8000])
        current = current.__cause__ or current.__context__
    return texts[::-1]


def _emit(answers: IO[str], **event: Any) -> None:
    answers.write(json.dumps(event) + "\n")
    answers.flush()


if __name__ == "__main__":
    main(sys.argv[1])
