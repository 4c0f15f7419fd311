"""Plans whose ending is known, each run over a link that is disturbed once; see chaos.py."""

import os
import shlex
from collections.abc import Callable
from dataclasses import replace

import pytest

from harness.bench.bench import Bench
from harness.core.errors import DeviceError
from harness.models.builtin_models import Model
from harness.models.session_plan import schedule
from harness.probe.plan import Plan, Settings, Step
from tests.faults.chaos_link import CASE_S
from tests.faults.control import ask

SEEDS = [int(seed) for seed in os.environ.get("QNN_CHAOS_SEEDS", "").split()]
QUIET = bool(os.environ.get("QNN_CHAOS_QUIET"))
TINY = Model.parse("tiny")


def tiny(bench: Bench) -> Plan:
    return bench.context_plan(bench.contexts(TINY), schedule(2, "sequential"))


def damaged(bench: Bench) -> Plan:
    """A context binary that ends too early, which the real library refuses."""
    plan = tiny(bench)
    cut = f"{bench.device.workdir}/cut-short.bin"
    (whole,) = {step.fields["file"] for step in plan.steps if step.verb == "context-load"}
    copy = f"head -c 3000 {shlex.quote(whole)} >{shlex.quote(cut)}.new"
    moved = f"{copy} && mv {shlex.quote(cut)}.new {shlex.quote(cut)} && wc -c <{shlex.quote(cut)}"
    answer = bench.device.transport.shell(moved, timeout_s=10)
    if answer.stdout.strip() != b"3000":  # the script itself was damaged on its way
        raise DeviceError("no file was made", serial=bench.device.transport.serial, command=moved)
    steps = (
        replace(step, fields={**step.fields, "file": cut}) if step.verb == "context-load" else step
        for step in plan.steps
    )
    return Plan(tuple(steps), plan.settings)


def simple(*steps: Step) -> Callable[[Bench], Plan]:
    return lambda bench: Plan(steps, Settings(memory="off"))


KINDS: dict[str, Callable[[Bench], Plan]] = {
    "tiny": tiny,
    "damaged": damaged,
    "crash": simple(Step("noop"), Step("sleep", {"ms": "200"}), Step("crash", {"signal": "11"})),
    "hang": simple(Step("noop"), Step("hang")),
    "slow": simple(Step("noop"), Step("sleep", {"ms": "1000"}), Step("noop")),
    "many": simple(*[Step("noop")] * 300),
}


def kind_of(seed: int) -> str:
    return list(KINDS)[seed % len(KINDS)]


@pytest.fixture
def disturbed_early(seed: int) -> None:
    """Every other time the link is disturbed before the device is looked at."""
    if not QUIET and seed // len(KINDS) % 2:
        ask(f"disturb {seed}")


@pytest.mark.device
@pytest.mark.parametrize("seed", SEEDS)
def test_chaos(disturbed_early: None, bench: Bench, seed: int) -> None:
    plan = KINDS[kind_of(seed)](bench)
    if not QUIET:
        ask(f"disturb {seed}")
    bench.run(plan, timeout_s=CASE_S).check()
