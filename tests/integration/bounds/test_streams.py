"""Whoever sends without end is not listened to without end: each reader stays below 200 MB."""

import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from harness.diagnosis.log_reader import MAX_LINES

MOST_KB = 200_000
_PEAK = """
print([line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")][0])
"""


def peak_kb(program: str, *words: object) -> tuple[int, str]:
    """The peak of a process that runs a program, and its output."""
    completed = subprocess.run(
        [sys.executable, "-c", program + _PEAK, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr[-2000:]
    output, _, peak = completed.stdout.rstrip("\n").rpartition("\n")
    return int(peak), output


COORDINATOR = """
import sys
from harness.core.errors import InfraError
from harness.labgrid.keeper import Coordinator, CoordinatorUnreachable
try:
    Coordinator(sys.argv[1], "host/user")
except InfraError as error:
    print(isinstance(error, CoordinatorUnreachable), error)
"""


def test_a_coordinator_that_sends_without_end() -> None:
    import grpc
    from labgrid.remote.generated import (
        labgrid_coordinator_pb2 as pb,
        labgrid_coordinator_pb2_grpc as rpc,
    )

    class Endless(rpc.CoordinatorServicer):  # type: ignore[misc]
        def ClientStream(self, request_iterator: object, context: Any) -> Iterator[object]:  # noqa: N802
            for number in itertools.count():
                if not context.is_active():
                    return
                places = [
                    pb.UpdateResponse(
                        place=pb.Place(name=f"{number}-{index}", comment="x" * 10_000)
                    )
                    for index in range(100)
                ]
                yield pb.ClientOutMessage(updates=places)

    server = grpc.server(ThreadPoolExecutor(2))
    rpc.add_CoordinatorServicer_to_server(Endless(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        peak, output = peak_kb(COORDINATOR, f"127.0.0.1:{port}")
    finally:
        server.stop(None)
    assert output.startswith("False ")
    assert "32 MB" in output
    assert peak < MOST_KB


# a mock of a probe, which logs without end
TALKATIVE_PROBE = """#!{python}
import sys
from zlib import crc32
def event(n, content):
    line = '{{"n":%d,%s' % (n, content)
    sys.stdout.write('\\x1e%s,"crc":"%08x"}}\\n' % (line, crc32(line.encode())))
event(0, '"event":"start","source":"x","pid":1,"target":"x"')
event(1, '"event":"begin","step":0,"verb":"noop"')
for n in range(2, 100_000_000):
    event(n, '"event":"log","step":0,"level":"error","text":"%d {text}","t_us":1' % n)
"""
RUN = """
import sys
from pathlib import Path
from harness.diagnosis.verdict import judge
from harness.probe.events import kept_events
from harness.probe.plan import Plan, Step
from harness.probe.plan_runner import run_plan_locally
run = run_plan_locally(Path(sys.argv[1]), Plan((Step("noop"),)), env={}, timeout_s=120)
verdict = judge(run)
kept = kept_events(run.raw_events)
print(run.truncated, len(kept), "s3cret" in str(kept))
"""


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("x" * 1000, marks=pytest.mark.slow, id="long"),
        pytest.param("https://u:s3cret@h " + "y" * 300, marks=pytest.mark.nightly, id="secret"),
        pytest.param("z", marks=pytest.mark.nightly, id="short"),
    ],
)
def test_a_case_that_logs_without_end(tmp_path: Path, text: str) -> None:
    probe = tmp_path / "probe"
    probe.write_text(TALKATIVE_PROBE.format(python=sys.executable, text=text))
    probe.chmod(0o755)
    peak, output = peak_kb(RUN, probe)
    truncated, length, leaked = output.split()
    assert (truncated, leaked) == ("True", "False")
    assert 16 << 20 <= int(length) + (1 << 20) <= 24 << 20
    assert peak < MOST_KB


EXPLAIN = """
import sys
from harness.cli.explain import explain
explain.main([sys.argv[1], "--json"], standalone_mode=False)
"""
LETTERS: dict[int, int] = str.maketrans("0123456789", "ghijklmnop")
LOGS: dict[str, Callable[[int], str]] = {
    "alike": lambda n: f"11-23 10:00:00.{n % 1000:03} 1 2 E QnnDsp : graph {n} error {n * 7}\n",
    "different": lambda n: f"qnn error {n:x} {hex(n * 2654435761)[2:].translate(LETTERS)}\n",
    "foreign": lambda n: f"I ActivityManager: Process com.example{n} has died\n",
    "empty": lambda n: "\n",
}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(name, marks=() if name in ("alike", "foreign") else pytest.mark.slow)
        for name in LOGS
    ],
)
@pytest.mark.parametrize("size", [4 << 20, pytest.param(200 << 20, marks=pytest.mark.nightly)])
def test_explain_reads_a_log_of_any_size(tmp_path: Path, kind: str, size: int) -> None:
    log, numbers = tmp_path / "log", itertools.count()
    failure = "QnnDsp <E> Failed to find available PD for contextId 56 on deviceId 0 coreId 0"
    with log.open("w") as stream:
        while stream.tell() < size:
            piece = "".join(LOGS[kind](next(numbers)) for _ in range(20_000))
            stream.write(piece * max(1, (1 << 20) // len(piece)) if kind == "empty" else piece)
        stream.write(f"\n{failure}\n")
    peak, output = peak_kb(EXPLAIN, log)
    diagnoses = json.loads(output)["diagnoses"]
    texts = [line["text"] for diagnosis in diagnoses for line in diagnosis["lines"]]
    assert any(failure in text for text in texts), diagnoses
    assert peak < MOST_KB
    assert MAX_LINES < 10_000
