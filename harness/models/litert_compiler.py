"""LiteRT models (.tflite): compiled ahead of time with a QNN, and run on this computer's CPU.

LiteRT's compiler is software under test and runs in its own process, as QNN's does (compiler.py).
It comes from LiteRT's wheel, which has no library that loads the result on a device
(libLiteRtDispatch_Qualcomm.so).
"""

from __future__ import annotations

import re
import signal
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.core.deadline import Deadline
from harness.core.errors import InfraError
from harness.core.files import read_bounded, scratch_folder, sha256_of
from harness.core.guarded_process import spawn_guarded
from harness.core.socs import SOCS
from harness.core.verified_folder import make_once, publish, work_folder, write_manifest
from harness.models.compile_worker import LOOK_S, busiest_s
from harness.models.compiler import (
    WAIT_S,
    CompileError,
    output_text,
    own_environment,
    seconds_for,
    without_end,
    worker_command,
)
from harness.runtimes.catalog import Catalog
from harness.runtimes.pypi import (
    LIBRARY_FOLDER,
    RUNTIME_FOLDER,
    WheelRequest,
    qnn_wheel,
    require_compiling_host,
)

LITERT_VERSION: Final = "2.3.0"

_FOLDER: Final = "ai_edge_litert"
_PLATFORM: Final = "manylinux_2_27_x86_64"
_COMPILER: Final = f"{_FOLDER}/tools/apply_plugin_main"
_PLUGIN: Final = f"{_FOLDER}/vendors/qualcomm/compiler/libLiteRtCompilerPlugin_Qualcomm.so"
# the interpreter's imports, and the libraries that they are linked with
_CPU: Final = (
    *("__init__.py", "interpreter.py", "metrics_interface.py", "metrics_portable.py"),
    *("_pywrap_litert_interpreter_wrapper.so", "libpywrap_litert_common.so"),
)
_WANTED: Final = frozenset((_COMPILER, _PLUGIN, *(f"{_FOLDER}/{name}" for name in _CPU)))

_SAVER: Final = f"{LIBRARY_FOLDER}/libQnnSaver.so"
_LINKED: Final = frozenset((_SAVER, f"{LIBRARY_FOLDER}/libQnnIr.so"))
# The plug-in is linked with these; compiling for the HTP calls nothing of them.

WORKER: Final = Path(__file__).with_name("litert_worker.py")
_LOCK_TIMEOUT_S: Final = 1800.0

_MODEL: Final = "model.tflite"
_KEPT_OUTPUT_BYTES: Final = 2 << 20
_MAX_WORDS: Final = 1 << 16
_REFUSAL: Final = re.compile(r"^ERROR: \[[\w.]+:\d+\] (.+)$", re.MULTILINE)
# exit codes of the guardian for signals
_NOT_ITS_OWN: Final = {128 + number for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)}
_SIGNALLED: Final = 128
_ENDLESS: Final = _SIGNALLED + signal.SIGPROF


@dataclass(frozen=True)
class LitertHost:
    """LiteRT on this computer: compiles a .tflite with one QNN, and runs it on the CPU.

    `root` is a folder for PYTHONPATH, `qnn_root` the QNN as in `CompilerHost`, `linked` the folder
    of the other libraries that the plug-in needs.
    """

    qnn_version: str
    root: Path
    qnn_root: Path
    linked: Path


def litert_host(catalog: Catalog, version: str) -> LitertHost:
    """Return LiteRT for this Python and an exact QNN version, unpacked from their wheels.

    Raises ConfigError for an unknown version, InfraError if one of them is not available, or on a
    computer that the wheels are not for.
    """
    require_compiling_host()
    folder = "unpacked-litert"
    request = WheelRequest.for_this_python("ai-edge-litert", LITERT_VERSION, _PLATFORM)
    return LitertHost(
        version,
        root=catalog.wheels.folder(request, _WANTED.__contains__, folder).path,
        qnn_root=catalog.pypi.folder(version, "linux-x64").path,
        linked=catalog.wheels.folder(
            qnn_wheel(version, "linux-x64"), _LINKED.__contains__, folder
        ).path,
    )


class RefusedByCpu(Exception):
    """LiteRT does not run a model on the CPU; the text says why."""


def soc_for(soc: str | None, htp_arch: int) -> str:
    """Return LiteRT's name of a SoC, else of one with this HTP architecture (pure).

    Of SoCs with the same number in QNN, such as QCM6490 and QCS6490, LiteRT knows the first.
    """
    fitting = [known for known in SOCS.values() if known.htp_arch == htp_arch]
    chosen = next((known for known in fitting if known.name == soc), fitting[0])
    return next(known.name for known in fitting if known.soc_model == chosen.soc_model)


def refusal_in(log: str) -> str:
    """Return why the compiler wrote nothing: the first error that it logged (pure)."""
    match = _REFUSAL.search(log)
    return match[1].strip() if match else "it wrote no model and logged no error"


def compile_litert(host: LitertHost, model: Path, soc: str, cache_root: Path) -> Path:
    """Return the model with the plug-in's part compiled for Qualcomm, from the cache if it can.

    Raises CompileError if the compiler fails, InfraError if it was ended from outside, or the
    cache cannot be written.
    """
    digest = sha256_of(model)
    facts = {"model": digest, "soc": soc, "compiler": host.qnn_version, "litert": LITERT_VERSION}
    name = f"{digest[:16]}-{soc}-by-{host.qnn_version}-{LITERT_VERSION}"
    folder = cache_root / "litert" / name

    def make() -> None:
        with work_folder(folder.parent) as work:
            _compile(host, model, soc, work / _MODEL)
            write_manifest(work, facts)
            publish(work, folder)

    purpose = f"compiling {model.name} with LiteRT"
    compiled = make_once(folder, facts, make, doing=purpose, timeout_s=_LOCK_TIMEOUT_S)
    return compiled.files[_MODEL].path


def _compile(host: LitertHost, model: Path, soc: str, output: Path) -> None:
    complaint = f"LiteRT {LITERT_VERSION} with QNN {host.qnn_version} did not compile {model.name}"
    compiler, plugins = host.root / _COMPILER, (host.root / _PLUGIN).parent
    compiler.chmod(0o755)  # unpacked files are not executable
    with scratch_folder() as folder:
        (folder / "libQnnLpai.so").symlink_to(host.linked / _SAVER)
        qnn, runtime = host.qnn_root / LIBRARY_FOLDER, host.qnn_root / RUNTIME_FOLDER
        paths = f"{qnn}:{host.linked / LIBRARY_FOLDER}:{runtime}:{folder}"
        command = [str(compiler), "--cmd=apply", f"--model={model.absolute()}", f"--o={output}"]
        command += ["--soc_manufacturer=Qualcomm", f"--soc_model={soc}", f"--libs={plugins}"]
        environment, most_s = own_environment(LD_LIBRARY_PATH=paths), seconds_for(model)
        code, log = _run_command(command, environment, folder, complaint, most_s)
    # with an older QNN it writes an empty file
    if code == 0 and output.exists() and output.stat().st_size:
        return
    reason = _death(code, most_s) if code > _SIGNALLED else refusal_in(log)
    raise CompileError(complaint, chain=[reason], output=log)


def run_on_cpu(
    host: LitertHost, model: Path, inputs: Mapping[int, Path], tensors: Sequence[int], folder: Path
) -> dict[int, Path]:
    """Run a model on LiteRT's CPU; return raw files of its tensors, in `folder`, by number.

    Raises RefusedByCpu if the model does not run there, InfraError if LiteRT cannot be used.
    """
    purpose = f"LiteRT {LITERT_VERSION} on the CPU"
    outputs = {number: folder / f"tensor-{number}.raw" for number in tensors}
    refused = folder / "refused.txt"
    request = {"model": model.absolute(), "inputs": inputs, "wanted": outputs, "refused": refused}
    command = worker_command(WORKER, folder, request)
    environment, most_s = own_environment(PYTHONPATH=str(host.root)), seconds_for(model)
    code, log = _run_command(command, environment, folder, purpose, most_s)
    if code > _SIGNALLED:
        raise RefusedByCpu(_death(code, most_s))
    if refused.exists():
        raise RefusedByCpu(read_bounded(refused, _MAX_WORDS).decode("utf-8", "replace"))
    if code or not all(path.exists() for path in outputs.values()):
        last = log.strip().splitlines()[-1:] or ["no output"]
        raise InfraError(f"{purpose} cannot be used (exit code {code}): {last[0][:500]}")
    return outputs


def _death(code: int, most_s: float) -> str:
    return without_end(most_s) if code == _ENDLESS else f"it ended with signal {code - _SIGNALLED}"


def _run_command(
    command: Sequence[str], env: dict[str, str], folder: Path, purpose: str, most_s: float
) -> tuple[int, str]:
    """Run a command until its deadline; return its exit code and output.

    The code is `_ENDLESS` if a thread computes for longer than `most_s`.
    """
    deadline = Deadline(most_s + WAIT_S)
    with (
        tempfile.TemporaryFile() as output,
        spawn_guarded(command, env=env, cwd=folder, stdout=output, stderr=output) as child,
    ):
        while (code := child.wait(deadline.at_most(LOOK_S))) is None and not deadline.expired:
            process = child.command_pid()
            if process is not None and busiest_s(process) > most_s:
                code = _ENDLESS
                break
        log = output_text(output, _KEPT_OUTPUT_BYTES)
    if code is None or code in _NOT_ITS_OWN:
        seconds = f"{deadline.seconds:.0f} s"
        why = f"did not end within {seconds}" if code is None else "was ended from outside"
        raise InfraError(f"{purpose}: its process {why}")
    return code, log
