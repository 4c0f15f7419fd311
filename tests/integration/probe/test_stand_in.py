"""Errors that the probe notices in a stand-in for a backend that misbehaves on demand."""

import math
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.diagnosis.diagnosis import diagnosed
from harness.diagnosis.verdict import judge
from harness.probe import plan
from harness.probe.ort_plan import context_load_list, io_bind, io_release, io_run, memory_sample
from harness.probe.plan import Settings, Step
from harness.probe.plan_runner import EXIT_DONE
from harness.probe.transcript import StepResult
from tests.android.bionic import ProbeBuild
from tests.integration.probe.conftest import ALL_BUILDS, DATA_TYPES, Runner, StandIn

FOUR = np.array([1.5, -2.0, 0.25, 1e6], np.float32)


def executed(run: Runner, stand_in: StandIn, behaviour: str, **options: object) -> StepResult:
    """Loads and executes with the expectation that the output is a copy of the input."""
    binary, copied = stand_in.binary(behaviour), stand_in.file("four", FOUR)
    step = plan.execute(0, inputs=[copied], expected=[copied], **options)  # type: ignore[arg-type]
    steps = stand_in.opened(plan.context_load(0, binary), step, plan.context_free(0))
    completed = run(*steps, settings=Settings(deadline_ms=500 if behaviour == "hang" else 10_000))
    return completed.transcript.steps[6]


@pytest.mark.slow
@ALL_BUILDS
def test_it_works_when_the_backend_does(run: Runner, stand_in: StandIn) -> None:
    step = executed(run, stand_in, "plain", repeat=3)
    assert step.ok
    assert step.api == "QnnGraph_execute"
    assert step.data["runs"] == len(step.data["run_us"]) == 3
    assert step.duration_us == sum(step.data["run_us"])
    assert step.data["run_min_us"] <= step.data["run_max_us"]
    assert step.data["outputs"] == [
        {"index": 0, "name": "out", "elements": 4, "max_abs": 0, "beyond": 0, "nan": 0}
    ]


@pytest.mark.parametrize(
    ("behaviour", "error", "message", "runs"),
    [
        ("overflow", "guard", "run 1 wrote 2 bytes outside of output 0", 1),
        ("underflow", "guard", "run 1 wrote 1 bytes outside of output 0", 1),
        ("silent", "mismatch", "run 1: output 0 has 4 of 4 elements", 1),
        ("drift", "mismatch", "run 3: output 0 has 1 of 4 elements", 3),
    ],
)
def test_wrong_results_are_noticed_in_every_run(
    run: Runner, stand_in: StandIn, behaviour: str, error: str, message: str, runs: int
) -> None:
    step = executed(run, stand_in, behaviour, repeat=5)
    assert (step.code, step.error, step.data["runs"]) == (None, error, runs)
    assert (step.message or "").startswith(message)


def test_an_error_keeps_code_symbol_and_text(run: Runner, stand_in: StandIn) -> None:
    step = executed(run, stand_in, "fail", repeat=5)
    assert (step.code, step.symbol, step.message) == (6004, "STAND_IN_ERROR", "this is 6004")
    assert step.api == "QnnGraph_execute"
    assert step.data["runs"] == 1


@pytest.mark.parametrize("behaviour", ["crash", "hang"])
def test_what_never_comes_back_is_where_it_was(
    run: Runner, stand_in: StandIn, behaviour: str
) -> None:
    step = executed(run, stand_in, behaviour)
    assert (step.unfinished, step.api, step.context) == (True, "QnnGraph_execute", 0)


def test_a_refused_load(run: Runner, stand_in: StandIn) -> None:
    binary = stand_in.binary("refuse")
    completed = run(*stand_in.opened(plan.context_load(7, binary), Step("cleanup")))
    step = completed.transcript.first_failure
    assert step is not None
    assert (step.code, step.symbol, step.context) == (1002, "STAND_IN_ERROR", 7)
    assert (step.api, step.file) == ("QnnContext_createFromBinary", binary)
    assert [line.text for line in step.logs] == ["<E> Failed to find available PD for contextId 55"]
    assert step.data["size"] == Path(binary).stat().st_size
    assert step.rss_before_bytes
    assert step.rss_after_bytes


def test_an_explanation_without_a_symbol(run: Runner, stand_in: StandIn) -> None:
    load = plan.context_load(0, stand_in.file("other", b"something else"))
    step = run(*stand_in.opened(load)).transcript.first_failure
    assert step is not None
    assert (step.code, step.symbol) == (5000, None)
    assert step.message == "Not a stand-in's binary"


def test_a_code_survives_a_crash_while_asking_what_it_means(run: Runner, stand_in: StandIn) -> None:
    completed = run(
        *stand_in.opened(plan.context_load(0, stand_in.binary("refuse"))),
        env={"STAND_IN_DIES_ASKED": "1"},
    )
    step = completed.transcript.first_failure
    assert step is not None
    assert (step.code, step.unfinished) == (1002, True)


def test_chatter_from_many_threads_does_not_displace_the_line_that_matters(
    run: Runner, stand_in: StandIn
) -> None:
    load = plan.context_load(0, stand_in.binary("chatter"))
    settings = Settings(log_level="debug", max_log_bytes=40_000)
    completed = run(*stand_in.opened(load, Step("noop")), settings=settings)
    assert completed.transcript.malformed_count == 0
    step = completed.transcript.steps[5]
    assert step.ok
    assert step.logs[-1].text == "the line that matters"
    assert sum(len(line.text) for line in step.logs) <= 40_000
    assert 20 < len(step.logs) < 8001


def test_any_byte_can_stand_in_a_log_line(run: Runner, stand_in: StandIn) -> None:
    load = plan.context_load(0, stand_in.binary("bytes"))
    completed = run(*stand_in.opened(load))
    assert completed.transcript.malformed_count == 0
    everything, endless = (line.text for line in completed.transcript.steps[5].logs)
    expected = "".join(map(chr, range(1, 128))) + "\ufffd" * 128
    assert everything == expected
    assert len(endless) == 4095


def test_a_line_logged_later_belongs_to_the_step_then_under_way(
    run: Runner, stand_in: StandIn
) -> None:
    load = plan.context_load(0, stand_in.binary("late"))
    completed = run(*stand_in.opened(load, Step("sleep", {"ms": "300"})))
    assert [line.text for line in completed.transcript.steps[6].logs] == ["spoken late"]


def test_what_a_library_prints_goes_to_stderr(run: Runner, stand_in: StandIn) -> None:
    completed = run(*stand_in.opened(plan.context_load(0, stand_in.binary("plain"))))
    assert b"the stand-in prints on stdout" in completed.stderr
    assert b"the stand-in prints" not in completed.raw_events


def test_no_log_if_none_is_wanted(run: Runner, stand_in: StandIn) -> None:
    load = plan.context_load(0, stand_in.binary("refuse"))
    completed = run(*stand_in.opened(load), settings=Settings(log_level="off", memory="off"))
    step = completed.transcript.first_failure
    assert step is not None
    assert not step.logs
    assert step.rss_before_bytes is None
    assert completed.transcript.steps[2].skipped == "log_level=off"


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (FOUR.tobytes() + b"x", "size", "has 17 bytes, its tensor has 16"),
        (b"", "size", "has 0 bytes, its tensor has 16"),
        (None, "file", "No such file or directory"),
    ],
)
def test_a_file_that_does_not_fit_never_reaches_the_library(
    run: Runner, stand_in: StandIn, content: bytes | None, error: str, message: str
) -> None:
    good = stand_in.file("good", FOUR)
    bad = "/none" if content is None else stand_in.file("bad", content)
    load = plan.context_load(0, stand_in.binary("crash"))
    for files in ({"inputs": [bad]}, {"inputs": [good], "expected": [bad]}):
        completed = run(*stand_in.opened(load, plan.execute(0, **files)))  # type: ignore[arg-type]
        step = completed.transcript.first_failure
        assert step is not None
        assert (step.verb, step.code, step.error, step.ended) == ("execute", None, error, True)
        assert message in (step.message or "")


@pytest.mark.parametrize(
    ("behaviour", "data_type", "shape", "error"),
    [
        ("plain", 0x0204, (4,), "unsupported"),
        ("plain", 0x0232, (0,), "unsupported"),
        ("plain", 0x0232, (65536, 65536), "unsupported"),
        ("plain", 0x0232, (1 << 31, 1 << 31, 1 << 31), "unsupported"),
        ("plain", 0x0232, (1,) * 15 + (4,), None),
        ("unknown-info", 0x0232, (4,), "metadata"),
        ("many-graphs", 0x0232, (4,), "metadata"),
        ("many-tensors", 0x0232, (4,), "metadata"),
    ],
)
def test_odd_metadata(
    run: Runner,
    stand_in: StandIn,
    behaviour: str,
    data_type: int,
    shape: tuple[int, ...],
    error: str | None,
) -> None:
    load = plan.context_load(0, stand_in.binary(behaviour, data_type, shape))
    execution = plan.execute(0, inputs=[stand_in.file("four", FOUR)])
    completed = run(*stand_in.opened(load, execution))
    assert completed.transcript.steps[6].error == error


def test_metadata_is_reported_and_kept(run: Runner, stand_in: StandIn) -> None:
    binary = stand_in.binary("plain", 0x0408, (1, 2, 3))
    completed = run(
        *stand_in.opened(
            plan.context_inspect(binary),
            plan.context_load(0, binary),
            plan.execute(0, inputs=[stand_in.file("six", b"abcdef")]),
        )
    )
    inspected, _, ran = completed.transcript.steps[5:]
    assert inspected.data["graphs"][0]["outputs"] == [
        {
            "id": 2,
            "name": "out",
            "data_type_code": 0x0408,
            "data_type": "ufixed8",
            "dimensions": [1, 2, 3],
            "bytes": 6,
            "memory_type": 0,
            "encoding": "scale-offset",
            "scale": 0.5,
            "offset": -3,
        }
    ]
    assert ran.ok
    assert "inspect_us" not in ran.data


def test_outputs_are_saved_even_if_they_are_wrong(
    run: Runner, stand_in: StandIn, tmp_path: Path
) -> None:
    copied, saved = stand_in.file("four", FOUR), tmp_path / "saved"
    for behaviour, content in (("plain", FOUR.tobytes()), ("silent", b"\xc3" * 16)):
        step = plan.execute(0, inputs=[copied], expected=[copied], saved=[str(saved)])
        run(*stand_in.opened(plan.context_load(0, stand_in.binary(behaviour)), step))
        assert saved.read_bytes() == content
    unsaveable = plan.execute(0, inputs=[copied], saved=["/proc/none"])
    completed = run(*stand_in.opened(plan.context_load(0, stand_in.binary("plain")), unsaveable))
    assert completed.transcript.steps[6].error == "file"
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("existing", ["target", "part"])
def test_an_output_takes_the_place_of_nothing_but_a_file(
    run: Runner, stand_in: StandIn, tmp_path: Path, existing: str
) -> None:
    """As root, a rename would take a device node away, and a FIFO would be waited at."""
    copied, saved = stand_in.file("four", FOUR), tmp_path / "saved"
    in_the_way = saved if existing == "target" else tmp_path / "saved.part"
    os.mkfifo(in_the_way)
    step = plan.execute(0, inputs=[copied], saved=[str(saved)])
    completed = run(*stand_in.opened(plan.context_load(0, stand_in.binary("plain")), step))
    if existing == "target":
        assert "is not a regular file" in str(completed.transcript.steps[6].message)
        assert saved.is_fifo()
    else:
        assert completed.transcript.steps[6].ok
        assert saved.read_bytes() == FOUR.tobytes()


LOAD = plan.context_load(0, "BINARY")
BIND = io_bind(0, "raw", inputs=["FOUR"], expected=["FOUR"])


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ((plan.execute(0),), "this context is not loaded"),
        ((plan.context_load(0, "/none"),), "No such file"),
        ((plan.context_load(0, "/"),), "not a regular file"),
        ((plan.context_load(0, "BINARY", max_bytes=5),), "the limit is 5"),
        ((LOAD, LOAD), "loaded already"),
        ((LOAD, plan.execute(0, graph=1)), "has 1 graphs"),
        ((LOAD, plan.execute(0)), "no input.0: tensor in"),
        ((LOAD, plan.execute(0, inputs=["/x", "/y"])), "input.1: the graph has 1 inputs"),
        ((LOAD, plan.execute(0, inputs=["/x"], saved=[None, "/y"])), "has 1 outputs"),
        ((plan.backend_load("LIBRARY"),), "a backend is loaded already"),
        ((plan.system_load("LIBRARY"),), "a system library is loaded already"),
        ((Step("backend-create"),), "there is a backend already"),
        ((plan.device_create(),), "there is a device already"),
        ((Step("log-create"),), "there is a log already"),
        ((LOAD, BIND, BIND), "this context has buffers already"),
        ((LOAD, io_run(0)), "this context has no buffers"),
        ((BIND,), "this context is not loaded"),
        ((plan.context_load(1, "/x", options={"spill_fill_group": 1}),), "is not loaded"),
        ((LOAD, context_load_list(0, ["/x"])), "this context is loaded already"),
        ((context_load_list(8191, ["/x", "/x"]),), "the last context must be below 8192"),
    ],
)
def test_what_cannot_be_done_is_said(
    run: Runner, stand_in: StandIn, steps: tuple[Step, ...], message: str
) -> None:
    places = {"BINARY": stand_in.binary("plain"), "LIBRARY": str(stand_in.library)}
    places["FOUR"] = stand_in.file("four", FOUR)
    filled = [
        Step(step.verb, {key: places.get(value, value) for key, value in step.fields.items()})
        for step in steps
    ]
    step = run(*stand_in.opened(*filled)).transcript.first_failure
    assert step is not None
    assert (step.step, step.code) == (4 + len(steps), None)
    assert message in (step.message or "")


def test_a_library_of_something_else(run: Runner, build: ProbeBuild) -> None:
    for load in (plan.backend_load, plan.system_load):
        step = run(load(build.libm)).transcript.first_failure
        assert step is not None
        assert step.error == "symbol"


def compile_library(compiler: str, library: Path, source: str, *flags: object) -> None:
    file = library.with_suffix(".c")
    file.write_text(source)
    command = [compiler, "-shared", "-fPIC", f"-Wl,-soname,{library.name}", *flags, file]
    subprocess.run([*command, "-o", library], check=True, timeout=60)


@ALL_BUILDS
def test_a_library_that_needs_one_that_is_not_there(
    run: Runner, build: ProbeBuild, tmp_path: Path
) -> None:
    """In the words of each C library: FastRPC's own, which only its vendor's image has."""
    needed, library = tmp_path / "libcdsprpc.so", tmp_path / "libQ.so"
    compile_library(build.compiler, needed, "int nothing;\n")
    compile_library(build.compiler, library, "int none;\n", "-Wl,--no-as-needed", needed)
    needed.unlink()
    completed = run(plan.backend_load(str(library)))
    step = completed.transcript.first_failure
    assert step is not None
    assert "libcdsprpc.so" in (step.message or "")
    error = judge(completed).error
    assert error is not None
    diagnosis = diagnosed("failed", error)
    assert diagnosis.diagnosis is not None, step.message
    assert diagnosis.diagnosis.id == "no-fastrpc"


@ALL_BUILDS
def test_which_of_two_libraries_of_one_name_was_taken(
    run: Runner, build: ProbeBuild, tmp_path: Path
) -> None:
    """On each C library: the first folder of LD_LIBRARY_PATH has another libQnnHtp.so than ours."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for folder, size in ((theirs, 1), (ours, 100_000)):
        folder.mkdir()
        source = (
            f"char room[{size}] = {{1}};\nint nothing;\n"
            'const char *version(void) { return "v2.28.2.241116104011"; }\n'
        )
        compile_library(build.compiler, folder / "libQnnHtp.so", source, "-Wl,--build-id")
    completed = run(
        plan.backend_load("libQnnHtp.so"),
        plan.system_load(str(ours / "libQnnSystem.so")),
        env={"LD_LIBRARY_PATH": f"{theirs}:{ours}"},
    )
    libraries = [
        library for library in completed.transcript.libraries if library.name == "libQnnHtp.so"
    ]
    assert len(libraries) == 1, completed.transcript
    assert libraries[0].path.endswith("/theirs/libQnnHtp.so")
    assert (libraries[0].hides or "").endswith("/ours/libQnnHtp.so")
    assert libraries[0].version == "2.28.2.241116104011"
    assert len(libraries[0].build_id or "") >= 16
    # a copy of ours hides nothing, and needs no version
    copied = run(
        plan.backend_load(str(ours / "libQnnHtp.so")), env={"LD_LIBRARY_PATH": str(theirs)}
    )
    (own,) = (library for library in copied.transcript.libraries if library.name == "libQnnHtp.so")
    assert (own.hides, own.version) == (None, None)


def test_a_warm_up_does_not_count(run: Runner, stand_in: StandIn) -> None:
    step = executed(run, stand_in, "plain", repeat=plan.Rounds(4, 3))
    assert (step.data["runs"], step.data["warmup"], len(step.data["run_us"])) == (4, 3, 4)
    assert step.duration_us >= sum(step.data["run_us"]) + step.data["first_us"]
    assert step.data["run_min_us"] == min(step.data["run_us"])
    # a wrong output is told of a warm-up, too
    drifts = executed(run, stand_in, "drift", repeat=plan.Rounds(4, 3))
    assert (drifts.error, drifts.data["runs"]) == ("mismatch", 1)


def test_no_round_begins_when_the_time_is_over(run: Runner, stand_in: StandIn) -> None:
    step = executed(run, stand_in, "plain", repeat=plan.Rounds(90_000, 1, 20))
    assert 1 <= step.data["runs"] < 90_000
    assert len(step.data["run_us"]) <= 4096
    # a warm-up that takes it all: its last round counts
    step = executed(run, stand_in, "plain", repeat=plan.Rounds(5, 99_999, 1))
    assert (step.data["runs"], step.data["warmup"] < 99_999) == (1, True)
    assert len(step.data["run_us"]) == 1


def test_a_least_time_makes_more_rounds_of_which_some_are_listed(
    run: Runner, stand_in: StandIn
) -> None:
    step = executed(run, stand_in, "plain", repeat=plan.Rounds(5, 1, 5000, 100))
    assert step.data["runs"] > 5
    listed, every = len(step.data["run_us"]), step.data["run_every"]
    assert listed == -(-step.data["runs"] // every) <= 4096
    many = executed(run, stand_in, "plain", repeat=10_000)
    assert (many.data["run_every"], len(many.data["run_us"])) == (4, 2500)


@pytest.mark.parametrize(
    ("states", "throttled"),
    [({"cdsp_sw": 0, "battery": 9}, 0), ({"cpufreq-cpu0": 2}, 7), ({"battery": 9}, None)],
)
def test_rounds_are_throttled_while_a_cooling_device_is_active(
    run: Runner, stand_in: StandIn, tmp_path: Path, states: dict[str, int], throttled: int | None
) -> None:
    for number, (name, state) in enumerate(states.items()):
        (folder := tmp_path / f"cooling/cooling_device{number}").mkdir(parents=True)
        (folder / "type").write_text(f"{name}\n")
        (folder / "cur_state").write_text(f"{state}\n")
    binary, copied = stand_in.binary("plain"), stand_in.file("four", FOUR)
    step = plan.execute(0, inputs=[copied], repeat=plan.Rounds(7, 2))
    step = replace(step, fields={**step.fields, "cooling": str(tmp_path / "cooling")})
    completed = run(*stand_in.opened(plan.context_load(0, binary), step, plan.context_free(0)))
    assert completed.transcript.steps[6].data.get("throttled") == throttled


def bound(stand_in: StandIn, behaviour: str = "plain") -> tuple[Step, Step]:
    copied = stand_in.file("four", FOUR)
    load = plan.context_load(0, stand_in.binary(behaviour))
    return load, io_bind(0, "raw", inputs=[copied], expected=[copied])


def test_buffers_are_used_again_and_given_back(run: Runner, stand_in: StandIn) -> None:
    steps = (*bound(stand_in), io_run(0, repeat=2), io_run(0), memory_sample("now"), io_release(0))
    again = bound(stand_in)[1]
    completed = run(*stand_in.opened(*steps, io_release(0), again, plan.context_free(0)))
    assert completed.exit_code == EXIT_DONE
    _, _, first, second, sample, released, nothing, rebound, freed = completed.transcript.steps[5:]
    assert (first.data["runs"], second.data["runs"]) == (2, 1)
    assert first.data["digests"] == second.data["digests"]
    assert sample.data["label"] == "now"
    assert released.ok
    assert nothing.skipped
    assert rebound.ok
    assert freed.ok


@pytest.mark.parametrize(
    ("behaviour", "error"), [("overflow", "guard"), ("silent", "mismatch"), ("drift", "mismatch")]
)
def test_every_run_is_checked(run: Runner, stand_in: StandIn, behaviour: str, error: str) -> None:
    completed = run(*stand_in.opened(*bound(stand_in, behaviour), io_run(0, repeat=5)))
    assert completed.transcript.steps[7].error == error


def test_what_a_library_lacks_is_said(run: Runner, stand_in: StandIn) -> None:
    """This stand-in has neither QnnMem, nor profiles, nor the newer entries of the table."""
    load, bind = bound(stand_in)
    profiled = run(*stand_in.opened(load, bind, io_run(0, profile="detailed"))).transcript.steps[7]
    assert profiled.ok
    assert profiled.data["profile_code"] == 1000
    registered = io_bind(0, "memhandle", inputs=[stand_in.file("four", FOUR)])
    step = run(*stand_in.opened(load, registered)).transcript.steps[6]
    assert (step.error, step.message) == ("symbol", "the interface has no memRegister")
    listed = context_load_list(0, [stand_in.binary("plain")])
    step = run(*stand_in.opened(listed)).transcript.steps[5]
    assert step.error == "symbol"


def told(step: StepResult) -> list[str]:
    return [line.text for line in step.logs]


def test_contexts_execute_in_turn_with_the_same_registered_buffers(
    run: Runner, stand_in: StandIn
) -> None:
    contexts = [("plain", FOUR), ("plain", -FOUR), ("overflow", np.arange(8, dtype=np.float32))]
    steps = list[Step]()
    for number, (behaviour, array) in enumerate(contexts):
        file = stand_in.file(str(number), array)
        binary = stand_in.binary(behaviour, shape=array.shape)
        bind = io_bind(number, "memhandle", inputs=[file], expected=[file], share=True)
        steps += [plan.context_load(number, binary), bind]
    steps += [io_run(0), io_run(1), io_run(0, repeat=2), io_release(0), io_run(1), io_run(2)]
    completed = run(*stand_in.opened(*steps), env={"STAND_IN_MEMORY": "1"}).transcript.steps[5:]
    first, second, larger = (told(step) for step in completed[1:6:2])
    assert first == second
    assert not set(first) & set(larger)
    runs = [step for step in completed if step.verb == "io-run"]
    assert [step.ok for step in runs] == [True, True, True, True, False]
    assert [step.data["digests"] for step in runs[:2]] == [
        step.data["digests"] for step in (runs[2], runs[3])
    ]
    assert runs[-1].error == "guard"


def test_options_reach_the_library_as_they_were_given(run: Runner, stand_in: StandIn) -> None:
    options = {"reused_io_limit_mb": 64, "init_acceleration": 1, "binary_compatibility": "strict"}
    load = plan.context_load(0, stand_in.binary("plain"), options=options)
    step = run(*stand_in.opened(load, plan.context_free(0))).transcript.steps[5]
    assert step.ok
    assert told(step) == [
        "context: custom 17 = 64",
        "context: custom 8 = 1",
        "context: standard 8 = 1",
    ]


def test_options_of_a_list_are_not_those_of_its_contexts(run: Runner, stand_in: StandIn) -> None:
    options = {"share_resources": 1, "reused_io_limit_mb": 9, "weight_sharing": 1}
    load = context_load_list(3, [stand_in.binary("plain")] * 2, options=options)
    steps = stand_in.opened(load, plan.context_free(3), plan.context_free(4))
    completed = run(*steps, env={"STAND_IN_LISTS": "1"}).transcript.steps
    assert [step.ok for step in completed[5:]] == [True, True, True]
    assert told(completed[5]) == [
        "list: custom 5 = 1",
        "list: custom 17 = 9",
        "context: custom 1 = 1",
        "context: custom 1 = 1",
    ]


@pytest.mark.parametrize("as_list", [False, True])
def test_a_persistent_binary_stays_until_its_context_is_freed(
    run: Runner, stand_in: StandIn, as_list: bool
) -> None:
    binary, four = stand_in.binary("persistent"), stand_in.file("four", FOUR)
    options = {"persistent_binary": 1}
    load = plan.context_load(0, binary, options=options)
    if as_list:
        load = context_load_list(0, [binary], options=options)
    execute = plan.execute(0, inputs=[four], expected=[four], repeat=2)
    again = (load, execute, plan.context_free(0))
    completed = run(*stand_in.opened(*again, *again), env={"STAND_IN_LISTS": "1"})
    assert completed.exit_code == EXIT_DONE


ELEMENTS = 96


def pairs(kind: type[np.generic], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """An array and one that differs from it in some places, by little, by much, by everything."""
    random = np.random.default_rng(seed)
    if np.issubdtype(kind, np.integer):
        limits = np.iinfo(kind)
        got = random.integers(limits.min, limits.max, ELEMENTS, kind, endpoint=True)
        expected = got.copy()
        expected[5] ^= kind(1)
        expected[6], got[6] = limits.min, limits.max
        expected[7::9] = random.permutation(got)[7::9]
        return got, expected
    got = random.standard_normal(ELEMENTS).astype(kind)
    expected = got.copy()
    expected[3] = np.nextafter(got[3], kind(9))
    expected[4:9] += kind(0.25)
    odd = [np.nan, np.inf, -np.inf, 0.0, -0.0, np.finfo(kind).tiny, np.finfo(kind).max]
    got[10:17], expected[10:17] = odd, odd
    got[20], expected[21] = np.nan, np.nan
    got[22], expected[22] = np.inf, -np.inf
    got[23], expected[23] = 0.0, -0.0
    return got, expected


def compared(got: np.ndarray, expected: np.ndarray, tolerance: float) -> dict[str, object]:
    """Return the comparison that the probe should report."""
    gaps, beyond = [], []
    for a, b in zip(got.tolist(), expected.tolist(), strict=True):
        finite = math.isfinite(a) and math.isfinite(b)
        gaps.append(abs(a - b) if finite else 0)
        same = a == b or (a != a and b != b)
        beyond.append(not same and (not finite or abs(a - b) > tolerance))
    nan = sum(value != value for value in got.tolist())
    result: dict[str, object] = {"max_abs": max(gaps), "beyond": sum(beyond), "nan": nan}
    if any(beyond):
        result["first_index"] = beyond.index(True)
    return result


@pytest.mark.parametrize("data_type", DATA_TYPES, ids=hex)
def test_it_finds_what_numpy_finds(run: Runner, stand_in: StandIn, data_type: int) -> None:
    kind = DATA_TYPES[data_type]
    steps, results = [], []
    binary = stand_in.binary("plain", data_type, (ELEMENTS,))
    for seed in range(4):
        got, expected = pairs(kind, seed)
        if seed == 3:
            expected = got.copy()
        files = [stand_in.file(f"got{seed}", got)], [stand_in.file(f"expected{seed}", expected)]
        for tolerance in (0.0, 0.2, 1.0, 1e9):
            # behind `cleanup`, a failure does not keep the others from being tried
            steps.append(plan.execute(0, inputs=files[0], expected=files[1], tolerance=tolerance))
            results.append(compared(got, expected, tolerance))
    opened = stand_in.opened(plan.context_load(0, binary), plan.Step("cleanup"))
    completed = run(*opened, *steps)
    for step, figures in zip(completed.transcript.steps[7:], results, strict=True):
        (output,) = step.data["outputs"]
        assert output["elements"] == ELEMENTS
        assert output["max_abs"] == pytest.approx(figures.pop("max_abs"), rel=1e-8)
        assert {key: output.get(key) for key in figures} == figures
        assert step.error == ("mismatch" if figures["beyond"] else None)
