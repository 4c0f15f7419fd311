"""ONNX models with the shapes of their tensors: read by a process that is bounded."""

from __future__ import annotations

import tempfile
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harness.contexts.compiler.compiler import output_text, own_environment, worker_command
from harness.ground.errors import ConfigError
from harness.ground.files.scratch import scratch_folder
from harness.ground.files.whole_file import read_bounded
from harness.ground.host.deadline import Deadline
from harness.ground.host.guard import spawn_guarded

if TYPE_CHECKING:
    import onnx

WORKER: Final = Path(__file__).with_name("shapes_worker.py")
MOST_NODES: Final = 200_000
"""How many nodes a model comes to at most, with those of its functions at each call."""

MOST_GROWTH: Final = 16 << 20
"""What its shapes, and the nodes of its functions at each call, are beside twice its bytes."""
MOST_CPU_S: Final = 60
_WALL_S: Final = 5.0 * MOST_CPU_S
_MOST_BYTES: Final = 2 << 30
_BYTES_BY_BYTE: Final = 4
_MOST_WORDS: Final = 1 << 16


def shaped(path: Path) -> onnx.ModelProto:
    """Return a model with its tensors' shapes, and without the content of its large tensors.

    It is one for all who ask: nobody may change it. Raises ConfigError for what is no model, and
    for one that takes more time or memory than a model does.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}", file=path) from error
    return _shaped(path, (status.st_size, status.st_ino, status.st_mtime_ns))


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with its tensors' shapes and its functions' nodes in place of their calls.

    It has no content of large weights. Raises ConfigError as `shaped`.
    """
    with scratch_folder() as folder:
        path = folder / "model.onnx"
        path.write_bytes(model.SerializeToString())
        return _read(path, inline=True)


@lru_cache(maxsize=16)
def _shaped(path: Path, version: tuple[int, int, int]) -> onnx.ModelProto:
    del version  # a file that was changed is another one
    return _read(path, inline=False)


def _read(path: Path, *, inline: bool) -> onnx.ModelProto:
    import onnx

    most_bytes = _MOST_BYTES + _BYTES_BY_BYTE * path.stat().st_size
    with scratch_folder() as folder, tempfile.TemporaryFile() as output:
        made, refusal = folder / "made.onnx", folder / "refusal.txt"
        request = {
            "model": path.absolute(),
            "made": made,
            "refusal": refusal,
            "inline": inline,
            "most_nodes": MOST_NODES,
            "most_growth": MOST_GROWTH,
            "most_cpu_s": MOST_CPU_S,
            "most_bytes": most_bytes,
        }
        command = worker_command(WORKER, folder, request)
        environment = own_environment(OPENBLAS_NUM_THREADS="1")
        with spawn_guarded(
            command, env=environment, cwd=folder, stdout=output, stderr=output
        ) as child:
            code = child.wait(Deadline(_WALL_S))
        if made.exists() and code == 0:
            return onnx.load(made, load_external_data=False)
        last = output_text(output).strip().splitlines()[-1:] or ["it wrote nothing"]
        if code == 0 and refusal.exists():
            problem = read_bounded(refusal, _MOST_WORDS).decode("utf-8")
        else:
            ended = "was stopped" if code is None else f"ended with exit code {code}"
            problem = (
                f"a process that may take {MOST_CPU_S} s of a processor and {most_bytes >> 20} MiB "
                f"to infer its shapes {ended}: {last[0][:500]}"
            )
    raise ConfigError(f"cannot be read as an ONNX model: {problem}", file=path)
