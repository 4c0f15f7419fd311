"""The probe as a process: plans it refuses, deadlines, crashes, noise, and whom it dies with."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from zlib import crc32

import pytest

from harness.core.errors import ConfigError, InfraError
from harness.probe import plan
from harness.probe.plan import LIMITS, VERBS, Field, Plan, Settings, Step, check_fields
from harness.probe.plan_runner import (
    EXIT_BAD_PLAN,
    EXIT_DONE,
    EXIT_STEP_FAILED,
    MAX_STDERR_BYTES,
    run_plan_locally,
)
from harness.probe.transcript import EARLIER_FAILED
from tests.integration.probe.conftest import ALL_BUILDS, ENVIRONMENT, Runner
from tests.integration.transport.adb.remote import SLACK_S
from tests.stand_in.events import parse_transcript
from tests.unit.core.test_guarded_process import wait_gone


def feed(probe: Path, text: bytes, timeout_s: float = 20) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [str(probe)], input=text, capture_output=True, timeout=timeout_s, env=ENVIRONMENT
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("explode", "no verb 'explode'"),
        ("noop lib=x", "noop has no field 'lib'"),
        ("backend-load lib=a%00b", "bad value of 'lib'"),
        ("backend-load lib=a%4", "bad value of 'lib'"),
        ("backend-load lib=a lib=b", "'lib' given twice"),
        ("backend-load lib", "not key=value: 'lib'"),
        ("backend-load  lib=a", "not key=value: ''"),
        ("noop\0", "a NUL byte"),
        (f"sleep ms={10**19}", "is not a number"),
        ("", "no verb ''"),
    ],
)
def test_a_bad_plan_is_refused_before_anything_is_done(
    probe: Path, line: str, message: str
) -> None:
    completed = feed(probe, plan.sealed([line]).encode())
    transcript = parse_transcript(completed.stdout)
    assert completed.returncode == EXIT_BAD_PLAN, completed.stderr
    assert transcript.plan_error is not None
    assert transcript.plan_error.startswith("line 2: ")
    assert message in transcript.plan_error
    assert (transcript.plan_damaged, transcript.steps) == (False, [])


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (["noop", "set memory=off"], "line 3: "),
        (["set deadline_ms=5", "set memory=off"], "line 3: "),
        (["set memory=off", "noop"], ""),
    ],
)
def test_settings_are_told_once_and_first(probe: Path, lines: list[str], problem: str) -> None:
    refused = parse_transcript(feed(probe, plan.sealed(lines).encode()).stdout).plan_error or ""
    assert refused.startswith(problem)
    assert bool(refused) == bool(problem)


def least_and_most(key: str, rule: Field) -> tuple[list[str], list[str]]:
    """Fields that are just allowed, and such as just are not."""
    if key.endswith("."):
        value = "0" if rule.kind == "number" else "x"
        allowed, refused = (0, rule.most), (rule.most + 1, "00")
        return [f"{key}{i}={value}" for i in allowed], [f"{key}{i}={value}" for i in refused]
    if rule.kind == "word":
        return [f"{key}={word}" for word in rule.words], [f"{key}={rule.words[0][:-1]}"]
    values = {"text": ("x", ""), "real": ("1e299", "1e301"), "number": ("0", "-1")}
    allowed, refused = values[rule.kind]
    if rule.kind == "number":
        allowed, refused = str(rule.most), str(rule.most + 1)
        if rule.least > 0:
            return [f"{key}={rule.least}"], [f"{key}={rule.least - 1}", f"{key}={refused}"]
    return [f"{key}={allowed}"], [f"{key}={refused}"]


def needed(verb: str) -> list[str]:
    """The fields that a verb must have."""
    rules = VERBS[verb].items()
    return [least_and_most(key, rule)[0][0] for key, rule in rules if rule.required]


@ALL_BUILDS
def test_every_verb_is_known_on_both_sides(probe: Path) -> None:
    others = ("set", "cleanup", "exit", "crash", "hang", "sleep", "spew")
    verbs = ["cleanup", *(verb for verb in VERBS if verb not in others), "exit"]
    text = plan.sealed(" ".join((verb, *needed(verb))) for verb in verbs)
    transcript = parse_transcript(feed(probe, text.encode()).stdout)
    assert transcript.plan_error is None
    steps = {step.verb: step for step in transcript.steps}
    assert steps["backend-load"].error == "dlopen"
    no_libraries = ("ort-load", "system-load")
    assert {steps[verb].error for verb in no_libraries} == {"dlopen"}
    for verb, step in steps.items():
        if verb.endswith(("-free", "-unregister-ep")) and verb != "executorch-free":
            assert step.skipped, verb
        elif verb.startswith("executorch-"):
            assert step.error == "unsupported", verb
        elif verb.startswith(("log-", "device-", "context-", "execute", "io-run", "ort-")):
            assert step.error == ("dlopen" if verb in no_libraries else "plan"), verb
    assert steps["exit"].unfinished


@pytest.mark.parametrize("verb", VERBS)
def test_the_probe_and_the_harness_know_the_same_bounds(plain_probe: Path, verb: str) -> None:
    must = needed(verb)
    taken, refused = [must], [[field for field in must if field != missing] for missing in must]
    for key, rule in VERBS[verb].items():
        others = [field for field in must if not field.startswith(f"{key}=")]
        allowed, wrong = least_and_most(key, rule)
        taken += [[*others, field] for field in allowed if field not in others]
        refused += [[*others, field] for field in wrong]
    for fields in refused:
        text = plan.sealed([" ".join((verb, *fields))])
        assert feed(plain_probe, text.encode()).returncode == EXIT_BAD_PLAN, text
        with pytest.raises(ConfigError):
            check_fields(verb, dict(field.split("=") for field in fields))
    lines = [" ".join((verb, *fields)) for fields in taken]
    for plans in [[line] for line in lines] if verb == "set" else [lines]:
        text = plan.sealed([*plans, "at-the-end"])
        problem = parse_transcript(feed(plain_probe, text.encode()).stdout).plan_error
        assert "no verb 'at-the-end'" in (problem or "")


def by_hand(body: bytes, **other: int) -> bytes:
    header = {"bytes": len(body), "crc32": crc32(body)} | other
    return b"probe-plan 2 bytes=%d crc32=%08x\n" % tuple(header.values()) + body


WHOLE = by_hand(b"noop\nnoop\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "stdin ended after 0 bytes"),
        (WHOLE[:-1], "before the plan did"),
        (WHOLE + b"\n", "are not what their first line says"),
        (WHOLE.replace(b"noop", b"nood", 1), "are not what their first line says"),
        (WHOLE.replace(b"plan 2", b"plan 1"), "not the first line of a plan"),
        (WHOLE.replace(b"bytes=10", b"bytes=1o"), "not the first line of a plan"),
        (WHOLE.replace(b"bytes=10", b"bytes=99999999999999999999"), "not the first line of"),
        (by_hand(b"noop\n", bytes=LIMITS["PLAN_BYTES_MAX"] + 1), "not the first line of a plan"),
        (by_hand(b"noop\n", crc32=1), "are not what their first line says"),
        (b"x" * 5000, "its first line does not end"),
        (b"\0" * 100, "its first line does not end"),
    ],
)
def test_a_plan_that_was_damaged_on_its_way_is_no_bad_plan(
    probe: Path, text: bytes, message: str
) -> None:
    completed = feed(probe, text)
    transcript = parse_transcript(completed.stdout)
    assert completed.returncode == EXIT_BAD_PLAN, completed.stderr
    assert message in (transcript.plan_error or "")
    assert transcript.plan_damaged
    assert not transcript.steps


@pytest.mark.parametrize(
    ("body", "message"),
    [(b"backend-load lib=" + b"x" * 20000 + b"\n", "too long"), (b"noop", "end")],
    ids=["long", "endless"],
)
def test_a_line_that_is_too_long_or_does_not_end(probe: Path, body: bytes, message: str) -> None:
    problem = parse_transcript(feed(probe, by_hand(body)).stdout).plan_error
    assert message in (problem or "")


def test_a_plan_may_have_as_many_steps_as_promised(probe: Path) -> None:
    most = LIMITS["PLAN_STEPS_MAX"]
    for steps, code in ((most, 1), (most + 1, EXIT_BAD_PLAN)):
        text = plan.sealed(["exit code=1", *["noop"] * (steps - 1)])
        assert feed(probe, text.encode()).returncode == code


def test_the_plan_is_carried_out_without_waiting_for_the_end_of_stdin(probe: Path) -> None:
    with subprocess.Popen(
        [str(probe)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT
    ) as process:
        assert process.stdin is not None
        process.stdin.write(Plan((Step("noop"),)).text().encode())
        process.stdin.flush()
        assert process.wait(60) == EXIT_DONE


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL])
def test_a_crash_names_its_step(run: Runner, number: signal.Signals) -> None:
    completed = run(Step("noop"), Step("crash", {"signal": str(number.value)}), Step("noop"))
    assert (completed.signal, completed.exit_code, completed.timed_out) == (number, None, False)
    failure = completed.transcript.first_failure
    assert failure is not None
    assert (failure.step, failure.verb, failure.unfinished) == (1, "crash", True)
    assert not completed.transcript.done


def test_its_own_deadline_ends_a_hang_and_says_what_its_threads_were_doing(run: Runner) -> None:
    settings = Settings(deadline_ms=100, linger_ms=200)
    completed = run(Step("noop"), Step("hang"), settings=settings)
    assert (completed.exit_code, completed.timed_out) == (124, True)
    assert (completed.transcript.deadline, completed.transcript.malformed) == (True, [])
    assert completed.transcript.last_begun is completed.transcript.first_failure
    assert 0.3 <= completed.duration_s < SLACK_S
    start = completed.transcript.start
    assert start is not None
    # qemu has a thread of its own beside it
    (event,) = (
        part for part in completed.raw_events.split(b"\x1e") if b'"event":"threads"' in part
    )
    (thread,) = (load for load in json.loads(event)["threads"] if load["tid"] == start.pid)
    assert (thread["name"], thread["state"]) == ("qnn-probe", "S")
    # Android's pause() waits for a signal by another call
    assert not thread.get("wchan") or re.search("pause|sigsuspend", thread["wchan"])


def test_whoever_runs_it_ends_it_if_need_be(plain_probe: Path) -> None:
    late = Settings(deadline_ms=60_000)
    completed = run_plan_locally(plain_probe, Plan((Step("hang"),), late), env={}, timeout_s=0.3)
    assert (completed.exit_code, completed.signal, completed.timed_out) == (None, None, True)
    assert not completed.transcript.deadline
    assert completed.transcript.last_begun is not None
    assert completed.duration_s < SLACK_S


@pytest.mark.slow
def test_the_deadline_holds_even_if_nobody_reads_any_more(plain_probe: Path) -> None:
    text = Plan((Step("spew", {"bytes": str(1 << 24), "to": "events"}),), Settings(500)).text()
    with subprocess.Popen([plain_probe], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(text.encode())
        process.stdin.flush()
        assert process.wait(60) == 124
        process.kill()


def test_a_failure_skips_up_to_cleanup_and_not_beyond(run: Runner) -> None:
    completed = run(
        plan.backend_load("/none"),
        Step("noop"),
        Step("cleanup"),
        plan.system_load("/none"),
        Step("noop"),
        Step("device-free"),
    )
    *steps, freed = completed.transcript.steps
    outcomes = [(step.error, step.skipped, step.ok) for step in steps]
    assert outcomes == [
        ("dlopen", None, False),
        (None, EARLIER_FAILED, False),
        (None, "marker", False),
        ("dlopen", None, False),
        (None, None, True),
    ]
    assert freed.skipped
    assert completed.exit_code == EXIT_STEP_FAILED


def test_noise_of_a_library_lands_on_stderr_and_is_bounded(run: Runner) -> None:
    completed = run(
        Step("spew", {"bytes": "1000"}),
        Step("spew", {"bytes": str(1 << 21), "to": "stderr"}),
        Step("spew", {"bytes": "999", "to": "events"}),
        Step("noop"),
    )
    transcript = completed.transcript
    assert [step.ok for step in transcript.steps] == [True] * 4
    assert transcript.malformed_count == 0
    assert len(completed.stderr) == MAX_STDERR_BYTES
    assert b"\x1e" not in completed.stderr


def test_a_flood_of_output_ends_it(plain_probe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.probe.plan_runner.MAX_OUTPUT_BYTES", 1 << 20)
    flood = Step("spew", {"bytes": str(1 << 40), "to": "events"})
    completed = run_plan_locally(plain_probe, Plan((flood,)), env={}, timeout_s=60)
    assert (completed.truncated, completed.exit_code, completed.signal) == (True, None, None)
    assert completed.duration_s < SLACK_S


def test_it_dies_with_whoever_started_it(plain_probe: Path) -> None:
    """A shell that is killed outright takes its probe with it."""
    parent = (
        "import subprocess, sys\n"
        f"probe = subprocess.Popen([{str(plain_probe)!r}], stdin=subprocess.PIPE)\n"
        f"probe.stdin.write({Plan((Step('hang'),)).text()!r}.encode())\n"
        "probe.stdin.flush()\n"
        "print(probe.pid, file=sys.stderr, flush=True)\n"
        "probe.wait()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as shell:
        assert shell.stdout is not None
        assert shell.stderr is not None
        number = int(shell.stderr.readline())
        while b'"begin"' not in shell.stdout.readline():
            pass
        shell.kill()
        shell.wait(60)
        # its stdout closes with it
        assert b"begin" not in shell.stdout.read()
    wait_gone([number], 30)


def test_it_stops_when_nobody_listens(plain_probe: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    completed = subprocess.run(
        [plain_probe], input=Plan((Step("hang"),)).text().encode(), stdout=writer, timeout=60
    )
    os.close(writer)
    assert completed.returncode in (-signal.SIGPIPE, 125)


def test_a_program_that_is_no_probe(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        run_plan_locally(tmp_path / "missing", Plan(()), env={}, timeout_s=60)
    with pytest.raises(InfraError):
        run_plan_locally(Path("/bin/true"), Plan(()), env={}, timeout_s=60)
