"""What the compiler's process answered, and how it ended, becomes a result per job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.contexts.compiler import CompileError, CompileJob, output_of, results_of
from harness.errors import InfraError
from harness.runtimes.catalog import CompilerHost

HOST = CompilerHost("2.51.0", "1.26.0", Path("/ort"), Path("/qnn"))
JOBS = [
    CompileJob(name, f"QNN 2.51.0 does not compile {name}", Path("m"), Path("f"), {})
    for name in ("one", "two", "three")
]
BEGIN_ONE, MADE_ONE = {"event": "begin", "job": "one"}, {"event": "made", "job": "one"}
BEGIN_TWO = {"event": "begin", "job": "two"}
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


def results(
    events: list[dict[str, Any]], code: int | None, output: str = OUTPUT
) -> dict[str, CompileError | None]:
    return results_of(HOST, JOBS, events, output, code, 60)


def test_all_made() -> None:
    events = [BEGIN_ONE, MADE_ONE, BEGIN_TWO, {"event": "made", "job": "two"}]
    assert results(events, 0) == {"one": None, "two": None}


def test_a_refusal_carries_the_whole_chain() -> None:
    found = results([BEGIN_ONE, MADE_ONE, BEGIN_TWO, FAILED_TWO], 0)
    error = found["two"]
    assert found["one"] is None
    assert isinstance(error, CompileError)
    assert error.cause == "target"
    assert len(error.chain) == 2
    text = str(error).splitlines()
    assert text[0] == (
        "QNN 2.51.0 does not compile two: RuntimeError: Error creating execution provider: FAIL"
    )
    assert [line.strip() for line in text[1:]] == [
        "QnnDsp <E> the real cause",
        "[E:onnxruntime] it failed",
    ]
    assert "harmless" in error.output
    assert "fine" not in error.output


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (139, "its process ended with signal 11"),
        (137, "its process ended with signal 9"),
        (1, "its process ended with exit code 1"),
        (None, "no end within 60 s"),
    ],
)
def test_the_job_that_was_under_way_is_named(code: int | None, told: str) -> None:
    found = results([BEGIN_ONE, MADE_ONE, BEGIN_TWO], code)
    assert set(found) == {"one", "two"}
    assert f"compile two: {told}" in str(found["two"])


@pytest.mark.parametrize("code", [0, 1, 139, None])
def test_a_process_that_did_nothing_is_the_labs_fault(code: int | None) -> None:
    with pytest.raises(InfraError, match="No module named numpy"):
        results([], code, "Traceback\nModuleNotFoundError: No module named numpy\n")


def test_libraries_that_do_not_fit_are_the_labs_fault() -> None:
    event = {"event": "unusable", "errors": ["OSError: no such file", "RuntimeError: no plug-in"]}
    with pytest.raises(InfraError, match=r"ORT 1\.26\.0 .* QNN 2\.51\.0: RuntimeError.*OSError"):
        results([event], 0)


@pytest.mark.parametrize(
    "events",
    [
        [{"event": "made", "job": "other"}],
        [{"event": "failed", "job": ["x"]}],
        [{"event": "failed"}],
        [{}],
        [{"event": None, "job": None}],
    ],
)
def test_answers_about_other_jobs_do_not_count(events: list[dict[str, Any]]) -> None:
    assert results([BEGIN_ONE, MADE_ONE, *events], 0) == {"one": None}


@pytest.mark.parametrize(("job", "said"), [("one", "fine"), ("three", ""), ("tw", "")])
def test_output_by_job(job: str, said: str) -> None:
    assert output_of(OUTPUT, job) == said
