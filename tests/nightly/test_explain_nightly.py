"""Logs that tell of no failure are explained by nothing, and a huge log is read in seconds."""

import io
import time
import tracemalloc
from itertools import cycle, islice
from pathlib import Path

import onnx
import pytest

from harness.diagnosis.explain_log import Explanation, explain
from harness.diagnosis.log_reader import read_log
from tests.integration.cli.test_run_litert import SELFIE, take
from tests.integration.device_runs import DeviceRuns
from tests.integration.probe.test_executorch import LLAMA
from tests.planted import Graph
from tests.unit.diagnosis.test_field_logs import NOISE

FAILURE = "QnnDsp <E> Failed to find available PD for contextId 56 on deviceId 0"
HUGE = 200_000_000
SECONDS = 20
MOST_BYTES = 200 << 20


class Endless(io.RawIOBase):
    """A log of this many bytes, made as it is read; its last line is a failure."""

    def __init__(self, size: int) -> None:
        lines = (
            f"11-26 10:{index // 60 % 60:02}:{index % 60:02}.000 "
            f"{index % 7919:5} {index % 6007:5} {line}"
            for index, line in enumerate(islice(cycle(filter(None, NOISE)), 100_000))
        )
        self._part = ("\n".join(lines) + "\n").encode()
        self._remaining = size
        self._end = f"{FAILURE}\n".encode()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        start = -self._remaining % len(self._part)
        data = self._part[start : start + min(len(buffer), self._remaining)]
        if not data:
            data, self._end = self._end[: len(buffer)], self._end[len(buffer) :]
        self._remaining -= min(len(data), self._remaining)
        buffer[: len(data)] = data
        return len(data)


@pytest.mark.nightly
def test_a_huge_log_is_read_in_seconds_and_bounded_memory() -> None:
    """The processor's time, since others use the computer, too."""
    start = time.process_time()
    log = read_log(Endless(HUGE))  # type: ignore[arg-type]
    diagnoses = explain(log.lines).diagnoses
    elapsed_s = time.process_time() - start
    print(f"\n{HUGE >> 20} MiB, {log.line_count} lines: {elapsed_s:.1f} s")
    assert {diagnosis.id for diagnosis in diagnoses} == {"pd-exhausted"}
    assert elapsed_s < SECONDS
    tracemalloc.start()
    read_log(Endless(HUGE // 8))  # type: ignore[arg-type]
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"at most {most >> 20} MiB")
    assert most < MOST_BYTES


@pytest.mark.nightly
@pytest.mark.parametrize("engine", ["qnn", "ort", "litert", "executorch"])
def test_runs_that_succeed_are_explained_by_nothing(engine: str, tmp_path: Path) -> None:
    """On the simulated device, with the real libraries, also as talkative as they can be."""
    lab, nothing = DeviceRuns(tmp_path), Explanation(level="nothing", diagnoses=())
    model: object = LLAMA if engine == "executorch" else "m.onnx"
    if engine == "litert":
        model = take(SELFIE, lab.folder)
    elif engine != "executorch":
        graph = Graph(0, (1, 8, 8, 8))
        end = graph.add("Conv", "x", graph.weight(8, 8, 1, 1))
        onnx.save(graph.model(end), tmp_path / "m.onnx")
    for more in ((), ("--qnn=2.47.0,2.51.0",)) if engine == "qnn" else ((),):
        code, output, records = lab.run_files(model, "--engine", engine, *more, "--lab", lab.file)
        assert code == 0, output
        logs = [lab.reports / "latest" / name for record in records for name in record["logs"]]
        assert len(logs) >= 3
        for log in logs:
            with log.open("rb") as stream:
                assert explain(read_log(stream).lines) == nothing, log.name
        assert explain(read_log(io.BytesIO(output.encode())).lines) == nothing
