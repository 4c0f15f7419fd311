"""Fixtures of all tests: a simulated lab of their own, and missing tools that are reported."""

import gc
import itertools
import os
import signal
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pluggy
import pytest
from hypothesis import HealthCheck, settings

from harness.core import hooks
from harness.core.notices import Notices, shown_by
from tests.integration.device_runs import WITHOUT_HYPOTHESIS
from tests.logged import Logged
from tests.needed import LEFT_OUT, need
from tests.snapshots import NAME, TESTED, Snapshot, update

# A busy machine makes everything slow, and that is no fault of what is tested.
# By day examples are few, and the same every time, so that a change is judged by what it changed;
# `make nightly` looks for new ones (`--hypothesis-profile=nightly`).
for profile, same, examples in (("harness", True, 40), ("nightly", False, 100)):
    settings.register_profile(
        profile,
        deadline=None,
        derandomize=same,
        max_examples=examples,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
settings.load_profile("harness")

ROOT = Path(__file__).parents[1]
FIGURES = "figures"
SLOW_LEFT_OUT = pytest.StashKey[Counter[str]]()
MARKED = frozenset({"slow", "nightly", "benchmark"})
SLOW_S = 2.0
BUSY = 10
"""So many times as long a test may take on a busy machine."""
LONG = frozenset({"nightly", "test_hostile_names.py", "test_memory.py"})
"""Folders and files whose tests begin first, so that no worker ends long after the others."""

ONE_DEVICE = """schema: 1
devices:
  - name: {name}
    simulated: true
    soc: QCS8550
"""

GONE = """schema: 1
devices:
  - {name: gone, serial: "127.0.0.1:9", host: away}
hosts:
  - {name: away, host: 127.0.0.1, port: 9}
"""
"""A lab whose adb server does not run, whatever runs on this computer."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--snapshot-update", action="store_true", help="write the texts as they are")


def pytest_configure() -> None:
    """Reset the signals of what tests start to those that a terminal gives.

    Under nohup and as a background job of a shell some are ignored, and children inherit that. This
    process goes on to pass them over, but with a handler, which no child inherits.
    """
    signals = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM)
    for number in signals:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    # Images of containers set it, and each process that a test starts would compile the harness.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # jsonschema would make 38 parsers for formats of addresses, which no schema of ours names
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Freeze the collected tests, which stay until the end, for the garbage collector."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONG.isdisjoint(item.path.relative_to(ROOT).parts))


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Slow tests that were left out, not those of another selection."""
    config = items[0].config
    if "not slow" in config.option.markexpr:
        of_night = ("nightly", "benchmark")
        _left_out(config).update(
            item.nodeid.partition("::")[0]
            for item in items
            if item.get_closest_marker("slow") and not any(map(item.get_closest_marker, of_night))
        )


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    if op == "==" and isinstance(right, Snapshot):
        return ["a text differs from its snapshot", *right.difference(left)]
    return None


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if any(seconds > BUSY * SLOW_S for seconds in _unmarked(session.config).values()):
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
    if session.config.option.snapshot_update:
        for file, tested in session.config.stash.get(TESTED, {}).items():
            update(file, tested)
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["slow"] = dict(_left_out(session.config))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Each worker has left out the same."""
    _left_out(node.config).update(
        Counter(getattr(node, "workeroutput", {}).get("slow")) - _left_out(node.config)
    )


def _unmarked(config: pytest.Config) -> dict[str, float]:
    """The seconds of each test of over 2 s that is not marked as one that takes long."""
    if getattr(config.option, "hypothesis_profile", None):
        return {}  # more examples take longer
    seconds = Counter[str]()
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    for report in itertools.chain.from_iterable(reporter.stats.values() if reporter else ()):
        if getattr(report, "when", "") == "call" and MARKED.isdisjoint(report.keywords):
            seconds[report.nodeid] += report.duration
    return {test: taken_s for test, taken_s in seconds.most_common() if taken_s > SLOW_S}


def _left_out(config: pytest.Config) -> Counter[str]:
    return config.stash.setdefault(SLOW_LEFT_OUT, Counter())


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs"):
        need(*marker.args)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if terminalreporter.config.getoption("numprocesses", None):  # what workers print is lost
        for report in itertools.chain.from_iterable(terminalreporter.stats.values()):
            if getattr(report, "when", None) == "call":
                for name, text in report.user_properties:
                    if name == FIGURES:
                        terminalreporter.write_line(text)
    config = terminalreporter.config
    if slow := _left_out(config):
        terminalreporter.section(f"{slow.total()} slow tests were left out")
        terminalreporter.write_line('.ci/run runs them, and make test ARGS="-m slow" them alone')
        for file, count in sorted(slow.items()):
            terminalreporter.write_line(f"    {file} ({count})")
    if unmarked := _unmarked(config):
        terminalreporter.section(f"{len(unmarked)} tests took over {SLOW_S:g} s: mark them slow")
        terminalreporter.write_line(f"over {BUSY * SLOW_S:g} s the run fails")
        for test, taken_s in unmarked.items():
            terminalreporter.write_line(f"    {taken_s:.1f} s {test}")
    left_out: dict[str, Counter[str]] = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        _, here, tool = reason.partition(LEFT_OUT)
        if here:
            left_out.setdefault(tool, Counter())[report.nodeid.partition("[")[0]] += 1
    for tool, tests in left_out.items():
        terminalreporter.write_line(f"left out for want of {tool}: {tests.total()} tests")
        for test, count in tests.items():
            terminalreporter.write_line(f"    {test}" + (f" ({count})" if count > 1 else ""))


@pytest.fixture(scope="session", autouse=True)
def quick_runs() -> None:
    """A pytest that a test starts does without hypothesis."""
    os.environ["PYTEST_ADDOPTS"] = WITHOUT_HYPOTHESIS


@pytest.fixture
def logged() -> Iterator[Logged]:
    """Collect the harness's messages to its user meanwhile."""
    logged = Logged()
    with shown_by(Notices(progress=logged.progress.append, warn=logged.warnings.append)):
        yield logged


@pytest.fixture
def snapshot(request: pytest.FixtureRequest) -> Snapshot:
    """The texts that this test has got before, without the path of its folder."""
    file = request.path.with_name(NAME)
    tested = request.config.stash.setdefault(TESTED, {}).setdefault(file, {})
    test = f"{request.path.name}::{request.node.name}"
    recorded = Snapshot(file, test, tested, updates=request.config.option.snapshot_update)
    if "tmp_path" in request.fixturenames:
        recorded.hide(request.getfixturevalue("tmp_path"), "TMP")
    return recorded


@pytest.fixture
def simulated_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A devices.yaml with one simulated device whose storage is this test's own."""
    monkeypatch.setenv("QNN_HARNESS_SIMULATED", str(tmp_path / "simulated"))
    monkeypatch.setenv("QNN_HARNESS_QUARANTINE", str(tmp_path / "quarantine"))
    monkeypatch.setenv("QNN_HARNESS_LEASES", str(tmp_path / "leases"))
    lab = tmp_path / "devices.yaml"
    lab.write_text(ONE_DEVICE.format(name="sim-test"))
    return lab


@pytest.fixture
def add_plug_in() -> Iterator[Callable[..., None]]:
    """Yield a function that adds a plug-in with one hook for the time of the test.

    It gets the hook's name and result, an exception to raise it, and the name of the plug-in.
    """
    manager = pluggy.PluginManager("pytest")
    hooks.use(manager)

    def add(hook: str, result: object, name: str = "acme") -> None:
        @pytest.hookimpl
        def implementation() -> object:
            if isinstance(result, Exception):
                raise result
            return result

        plugin = types.ModuleType(name)
        setattr(plugin, hook, implementation)
        manager.register(plugin, name)

    yield add
    hooks.leave(manager)


@pytest.fixture
def show_figures(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> Callable[..., None]:
    """Prints measured figures even when output is captured, and keeps them in junit.xml."""

    def show(title: str, **figures: object) -> None:
        text = f"{title}: " + ", ".join(f"{k} {v}" for k, v in figures.items())
        request.node.user_properties.append((FIGURES, text))
        with capsys.disabled():
            print(f"\n{text}")

    return show
