"""Votes for power: what a backend is asked, what it answers, and that votes are released."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.core.matrix_axes import POWER_PROFILES
from harness.probe import plan
from harness.probe.build import ProbeBuilder
from harness.probe.plan import SOURCE_FOLDER, Plan, Settings, Step
from harness.probe.plan_runner import EXIT_DONE, EXIT_STEP_FAILED, ProbeRun, run_plan_locally
from harness.probe.transcript import StepResult
from harness.results.probe_figures import power_votes
from harness.runtimes.runtime import Runtime
from tests.integration.probe.conftest import PLAIN_ONLY, Runner, StandIn, opening
from tests.integration.probe.test_versions import VERSIONS

BURST = Settings(power="burst")
ACCEPTED = {"infrastructure": 0, "client": 0, "dcvs": 0}
ALL_ACCEPTED = ACCEPTED | {"rpc_control_latency": 0, "rpc_polling_time": 0, "released": 0}
SET_POWER = "QnnHtpPerfInfrastructure_setPowerConfig"


def step_of(run: ProbeRun, verb: str) -> StepResult:
    (step,) = (step for step in run.transcript.steps if step.verb == verb)
    return step


def texts(step: StepResult) -> list[str]:
    return [line.text for line in step.logs]


def test_a_profile_is_voted_for_with_the_device_and_released_before_it_is_freed(
    run: Runner, stand_in: StandIn
) -> None:
    steps = stand_in.opened(Step("cleanup"), Step("device-free"))
    completed = run(*steps, settings=BURST)
    assert completed.exit_code == EXIT_DONE
    created, freed = (step_of(completed, verb) for verb in ("device-create", "device-free"))
    assert texts(created) == [
        "client 7: scaling 0, mode 16, sleep 40, bus 160-160, core 160-160",
        "client 7: option 2 is 100 us",
        "client 7: option 3 is 9999 us",
    ]
    assert texts(freed) == [
        "client 7: scaling 1, mode 4, sleep 2000, bus 48-48, core 48-48",
        "client 7: option 2 is 0 us",
        "client 7: option 3 is 0 us",
        "client 7 is gone",
    ]
    assert power_votes(completed.transcript) == ALL_ACCEPTED
    assert (created.api, freed.api) == (SET_POWER, "QnnDevice_free")


@pytest.mark.parametrize(
    ("profile", "vote"),
    [
        ("balanced", "scaling 1, mode 16, sleep 1000, bus 112-112, core 112-112"),
        ("high_performance", "scaling 0, mode 16, sleep 100, bus 128-128, core 128-128"),
        ("extreme_power_saver", "scaling 1, mode 4, sleep 1000, bus 16-16, core 16-16"),
    ],
)
def test_profiles_differ(run: Runner, stand_in: StandIn, profile: str, vote: str) -> None:
    completed = run(*stand_in.opened(), settings=Settings(power=profile))
    assert texts(step_of(completed, "device-create"))[0] == f"client 7: {vote}"


@pytest.mark.parametrize("profile", [None, "default"])
def test_without_a_profile_nothing_is_asked(
    run: Runner, stand_in: StandIn, profile: str | None
) -> None:
    completed = run(*stand_in.opened(Step("device-free")), settings=Settings(power=profile))
    assert completed.exit_code == EXIT_DONE
    assert power_votes(completed.transcript) == {}
    assert [step.logs for step in completed.transcript.steps] == [[]] * 6


@pytest.mark.parametrize(
    ("behaviour", "votes"),
    [
        ("refuse", ALL_ACCEPTED | {"rpc_polling_time": 1000, "released": 1000}),
        ("none", {"infrastructure": 1000}),
        ("other", {"infrastructure": 0}),
    ],
)
def test_a_refused_vote_is_a_finding_and_no_failure(
    run: Runner, stand_in: StandIn, behaviour: str, votes: dict[str, int]
) -> None:
    steps = stand_in.opened(Step("device-free"))
    completed = run(*steps, settings=BURST, env={"STAND_IN_POWER": behaviour})
    assert completed.exit_code == EXIT_DONE
    assert power_votes(completed.transcript) == votes


def test_a_crash_under_a_vote_has_its_function(run: Runner, stand_in: StandIn) -> None:
    completed = run(*stand_in.opened(), settings=BURST, env={"STAND_IN_POWER": "crash"})
    step = completed.transcript.first_failure
    assert step is not None
    assert (step.verb, step.api, step.unfinished) == ("device-create", SET_POWER, True)


def test_votes_are_released_after_a_failed_step(run: Runner, stand_in: StandIn) -> None:
    load = plan.context_load(0, stand_in.binary("refuse"))
    steps = stand_in.opened(load, Step("cleanup"), Step("device-free"))
    completed = run(*steps, settings=BURST)
    assert completed.exit_code == EXIT_STEP_FAILED
    assert power_votes(completed.transcript) == ALL_ACCEPTED


@PLAIN_ONLY
@pytest.mark.parametrize("version", VERSIONS)
def test_real_libraries_read_what_was_meant(
    run: Runner, runtime_for: Callable[[str], Runtime], version: str
) -> None:
    """The simulator takes each vote, and says in its most detailed log that it has no effect."""
    opened, env = opening(runtime_for(version))
    settings = Settings(power="burst", log_level="verbose", memory="off")
    completed = run(*opened, Step("device-free"), env=env, settings=settings)
    assert power_votes(completed.transcript) == ALL_ACCEPTED
    log = "\n".join(texts(step_of(completed, "device-create")))
    for words in (
        *("powerMode 16", "sleepLatency 40", "rpc control latency 100", "rpc polling time 9999"),
        "No perf settings support on this platform",
    ):
        assert words in log


def probe_with_unlike_corners(folder: Path, target: str = "linux-x64") -> Path:
    """A probe whose votes have six different corners: one that is in the wrong place is seen."""
    sources = folder / "native"
    shutil.copytree(SOURCE_FOLDER, sources)
    code = (sources / "power.c").read_text()
    for clock, first in (("bus", 0), ("core", 0x10)):
        same = f".{clock} = {{corner, corner, corner}}"
        assert same in code
        apart = (f"corner + {first + step}" for step in (0, 0x10, 0x20))
        code = code.replace(same, f".{clock} = {{{', '.join(apart)}}}")
    (sources / "power.c").write_text(code)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("harness.probe.build.SOURCE_FOLDER", sources)
        return ProbeBuilder(folder / "cache").build(target)


@pytest.fixture(scope="module")
def unlike_corners(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return probe_with_unlike_corners(tmp_path_factory.mktemp("corners"))


@pytest.mark.parametrize("version", VERSIONS)
def test_no_corner_is_in_the_place_of_another(
    runtime_for: Callable[[str], Runtime], version: str, unlike_corners: Path
) -> None:
    """The real library names the fields that it reads."""
    steps, env = opening(runtime_for(version))
    settings = Settings(power="high_power_saver", log_level="verbose", memory="off")
    completed = run_plan_locally(unlike_corners, Plan(steps, settings), env=env, timeout_s=60)
    log = "\n".join(texts(step_of(completed, "device-create")))
    corners = re.findall(r"(bus|core)VoltageCorner(Min|Target|Max) (\d+)", log)
    assert [(clock, end, int(corner)) for clock, end, corner in corners] == [
        *(("bus", "Min", 0x50), ("bus", "Target", 0x60), ("bus", "Max", 0x70)),
        *(("core", "Min", 0x60), ("core", "Target", 0x70), ("core", "Max", 0x80)),
    ]


@PLAIN_ONLY
@pytest.mark.parametrize("profile", POWER_PROFILES[1:])
def test_every_profile_is_accepted(
    run: Runner, runtime_for: Callable[[str], Runtime], profile: str
) -> None:
    opened, env = opening(runtime_for(VERSIONS[-1]))
    completed = run(*opened, Step("device-free"), env=env, settings=Settings(power=profile))
    assert power_votes(completed.transcript) == ALL_ACCEPTED
