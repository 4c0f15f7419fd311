"""Results of jobs from the answers and the ending of the compiler's process."""

from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import InfraError
from harness.models.compiler import CompileError, CompileJob, output_of, results_of
from harness.runtimes.pypi import CompilerHost
from tests.snapshots import Snapshot

HOST = CompilerHost("2.51.0", "1.26.0", Path("/ort"), Path("/qnn"))
JOBS = [
    CompileJob(name, f"QNN 2.51.0 does not compile {name}", Path("m"), Path("f"), {})
    for name in ("one", "two", "three")
]
BEGIN_ONE, MADE_ONE = {"event": "begin", "job": "one"}, {"event": "made", "job": "one"}
BEGIN_TWO, MADE_TWO = {"event": "begin", "job": "two"}, {"event": "made", "job": "two"}
FAILED_TWO = {
    "event": "failed",
    "job": "two",
    "errors": [
        "RuntimeError: /src/onnxruntime/core/session/ep.cc:69 virtual std::unique_ptr<X> "
        "onnxruntime::Create(const Options&) Error creating execution provider: FAIL",
        "InvalidArgument: Conflicting session configuration",
    ],
}
OUTPUT = (
    "noise\n@qnn-harness-job:one\nfine\n@qnn-harness-job:two\n"
    "[W:onnxruntime] harmless\nQnnDsp <E> the real cause\n[E:onnxruntime] it failed\n"
)


def results(events: list[dict[str, Any]]) -> dict[str, CompileError | None]:
    return results_of(HOST, JOBS, events, OUTPUT)


@pytest.mark.parametrize(
    ("events", "made"),
    [
        ([BEGIN_TWO, MADE_TWO], ["one", "two"]),
        ([BEGIN_TWO], ["one"]),
        ([{"event": "died", "job": "one", "code": -11}], ["one"]),
        ([{"event": "made", "job": "other"}], ["one"]),
        ([{"event": "failed", "job": ["x"]}], ["one"]),
        ([{"event": "failed"}], ["one"]),
        ([{}], ["one"]),
        ([{"event": None, "job": None}], ["one"]),
    ],
)
def test_a_job_is_made_that_is_told_to_be(events: list[dict[str, Any]], made: list[str]) -> None:
    assert results([]) == {}
    assert results([BEGIN_ONE, MADE_ONE, *events]) == dict.fromkeys(made)


def test_a_refusal_carries_the_whole_chain() -> None:
    by_job = results([BEGIN_ONE, MADE_ONE, BEGIN_TWO, FAILED_TWO])
    error = by_job["two"]
    assert by_job["one"] is None
    assert isinstance(error, CompileError)
    assert error.cause == "target"
    assert len(error.chain) == 2
    text = str(error).splitlines()
    assert text[0] == (
        "QNN 2.51.0 does not compile two: RuntimeError: Error creating execution provider: FAIL"
    )
    assert [line.strip("| ") for line in text[1:]] == [
        "QnnDsp <E> the real cause",
        "[E:onnxruntime] it failed",
    ]
    assert "harmless" in error.output
    assert "fine" not in error.output


def test_the_first_cause_goes_without_places_in_the_source_of_onnx_runtime() -> None:
    place = "/src/onnxruntime/core/graph/model.cc:181 onnxruntime::Model::Model(X&&, const Y&) "
    message = (
        f"Fail: [ONNXRuntimeError] : 1 : FAIL : Load model from /my models/m.onnx failed:{place}"
    )
    assert CompileError("m", chain=[f"{message}Unsupported IR"]).first == (
        "Fail: [ONNXRuntimeError] : 1 : FAIL : Unsupported IR"
    )


@pytest.mark.parametrize("code", [-11, -27, 1, "?"])
def test_a_job_whose_process_died(code: object, snapshot: Snapshot) -> None:
    died = {"event": "died", "job": "two", "code": code, "most_s": 40.0}
    by_job = results([BEGIN_ONE, MADE_ONE, BEGIN_TWO, died])
    assert by_job["one"] is None
    assert str(by_job["two"]).splitlines()[0] == snapshot


@pytest.mark.parametrize("signal", [14, 9, 15, 2])
def test_a_job_that_waited_or_was_ended_from_outside_says_nothing_of_the_compiler(
    signal: int,
) -> None:
    died = {"event": "died", "job": "two", "code": -signal}
    with pytest.raises(InfraError):
        results([BEGIN_ONE, MADE_ONE, BEGIN_TWO, died])


def test_libraries_that_do_not_fit_are_the_labs_fault() -> None:
    event = {"event": "unusable", "errors": ["OSError: no such file", "RuntimeError: no plug-in"]}
    with pytest.raises(InfraError, match=r"ORT 1\.26\.0 .* QNN 2\.51\.0: RuntimeError.*OSError"):
        results([event])


@pytest.mark.parametrize(("job", "message"), [("one", "fine"), ("three", ""), ("tw", "")])
def test_output_by_job(job: str, message: str) -> None:
    assert output_of(OUTPUT, job) == message


def test_what_the_library_also_logs_is_said_once() -> None:
    why = "Fail: [ONNXRuntimeError] : 1 : FAIL : running Conv node. Name:'c1'"
    log = "2026-11-26 21:27 [E:onnxruntime:, executor.cc:615 Execute] running Conv node. Name:'c1'"
    other = "2026-11-26 21:27 [E:onnxruntime:, executor.cc:615 Execute] another"
    assert str(CompileError("no", chain=[why], output=f"{log}\n{other}")).splitlines() == [
        f"no: {why}",
        f"  |     {other}",
    ]
