"""The one table of options, beside what is made of it."""

import argparse
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from _pytest.config.argparsing import Parser

from harness.cli.run import run
from harness.core.errors import ConfigError
from harness.lab.inventory import SIMULATED_LAB
from harness.plugin.collection import selection
from harness.plugin.options import (
    ALL,
    LONG,
    OPTIONS,
    SPELLED,
    Options,
    add_options,
    add_short_forms,
    count,
    in_long_forms,
    read_options,
    rounds,
    rounds_option,
    with_our_options,
)
from harness.probe.plan import ONCE, Rounds
from tests.snapshots import Snapshot

ROOT = Path(__file__).parents[3]


def read(root: Path, *words: str) -> Options:
    """Read options and `qnn_KEY=VALUE` of an ini file, in a folder below the root."""
    parser = Parser(_ispytest=True)
    add_options(parser)
    add_short_forms(parser)
    keys = dict(word.split("=", 1) for word in words if word.startswith("qnn_"))
    parsed = parser.parse([word for word in words if not word.startswith("qnn_")])
    place = SimpleNamespace(dir=root / "below", args=words)

    def get(name: str) -> Any:
        return getattr(parsed, name.removeprefix("--").replace("-", "_"))

    config = SimpleNamespace(
        getoption=get,
        getini=lambda key: keys.get(key, ""),
        invocation_params=place,
        rootpath=root,
    )
    return read_options(cast("pytest.Config", config))


def test_nothing_is_given(tmp_path: Path) -> None:
    options = read(tmp_path)
    assert (options.lab, options.reports) == (tmp_path / "devices.yaml", tmp_path / "reports")
    axes = ("device", "backend", "qnn", "ort", "compiler", "power")
    assert (options.axes, options.known_issues) == ({axis: [] for axis in axes}, None)
    assert (options.retries, options.preflight, options.spread) == (2, "warn", None)
    none = (None, None, None, None, None, None, None, None)
    nothing = type(options.contexts)((), (), (), 4, (), None, None, 0.0, *none, (), "refuse")
    assert options.contexts == nothing


def test_what_comes_with_the_package_where_a_folder_has_none(tmp_path: Path) -> None:
    suites = ROOT / "harness/suites"
    assert read(tmp_path, "harness.suites").known_issues == suites / "known_issues.yaml"
    assert read(tmp_path, "suites").known_issues is None
    assert read(tmp_path, "--device=sim-v73").lab == SIMULATED_LAB
    assert read(tmp_path, "--device=mine").lab == tmp_path / "devices.yaml"
    assert read(tmp_path, "--device=sim-v73", "--lab=x.yaml").lab == tmp_path / "below/x.yaml"
    (tmp_path / "devices.yaml").touch()
    assert read(tmp_path, "--device=sim-v73").lab == tmp_path / "devices.yaml"


@pytest.mark.parametrize(
    "reporting",
    [
        *("-rA", "-r A", "--maxfail=1", "--html=a.html", "--html a.html", "--self-contained-html"),
        *("--cov=tests", "--cov", "--cov suites", "--cov-report xml", "-xvs", "--ff", "-W error"),
        *("--log-file x", "--json-report", "--report-log=x", "--junit-xml j.xml", "--reruns 2"),
    ],
)
def test_how_pytest_reports_chooses_no_case(reporting: str) -> None:
    command = ("pytest", "-m", "device", "-k", "tiny")
    assert selection((*command, *reporting.split())) == selection(command)
    assert selection((*command[:3], *reporting.split(), *command[3:])) == selection(command)


def test_paths_lists_and_bounds(tmp_path: Path) -> None:
    words = ("--lab=x.yaml", "--reports=r", "--qnn=>=2.48,<2.51", "--qnn=2.47.0", "--device=a,b")
    more = ("--resume=last", "--spread=soc")
    files = ("--model=m.pte", "--copies=1,2", "--inputs=in", "--known-issues=")
    options, below = read(tmp_path, *words, *more, *files), tmp_path / "below"
    assert (options.lab, options.reports) == (below / "x.yaml", below / "r")
    assert options.axes["qnn"] == [">=2.48,<2.51", "2.47.0"]
    assert options.axes["device"] == ["a", "b"]
    assert options.resume == below / "r/last"
    assert options.spread == "soc"
    assert options.contexts.paths == (below / "m.pte",)
    assert (options.contexts.numbers, options.contexts.inputs) == (("1", "2"), below / "in")
    assert options.known_issues == tmp_path / "suites/known_issues.yaml"
    assert read(tmp_path).known_issues is None
    (tmp_path / "known_issues.yaml").touch()
    assert read(tmp_path).known_issues == tmp_path / "known_issues.yaml"


def test_a_single_case_has_the_names_in_its_name_but_not_its_versions(tmp_path: Path) -> None:
    words = ("qnn_only_case=suites/test_a.py::test_a[sim-gpu-2.47.0-ort-1.24.1-66]",)
    asked = {axis: values for axis, values in read(tmp_path, *words).axes.items() if values}
    assert asked == {"backend": ["gpu"]}
    assert read(tmp_path, *words, "--backend=cpu").axes["backend"] == ["cpu"]


def test_run_has_what_the_table_has_words_for() -> None:
    in_run = {str(param.name) for param in run.params} - {"files", "as_json"}
    assert in_run == {option.parameter for option in ALL if option.run is not None}


def test_ini_keys(tmp_path: Path) -> None:
    keys = ("qnn_retries=0", "qnn_lease_timeout=5m", "qnn_strict_known=True")
    more = ("qnn_reference=a.onnx", "qnn_context_option=a=1,b=2", "--limit=drift=2,tolerance=1.5")
    options = read(tmp_path, *keys, *more)
    assert (options.retries, options.lease_timeout_s, options.strict_known) == (0, 300.0, True)
    assert options.contexts.reference == tmp_path / "a.onnx"
    assert options.contexts.context_option == ("a=1", "b=2")
    assert (options.drift_steps, options.contexts.tolerance) == (2, 1.5)
    assert options.for_files == ("--limit",)
    assert read(tmp_path, "--limit=drift=2").for_files == ()


@pytest.mark.parametrize(
    "word",
    [
        *("qnn_retries=x", "qnn_lease_timeout=60", "qnn_preflight=loud", "qnn_rounds=0"),
        *("--limit=near=1", "--limit=drift=0.5", "--limit=max-error=nan", "--limit=tolerance"),
        *("--residency=all", "--residency=resident=2", "--residency=window=0"),
        "--residency=window=2,window=3",
    ],
)
def test_wrong_values(word: str, tmp_path: Path, snapshot: Snapshot) -> None:
    with pytest.raises(pytest.UsageError) as error:
        read(tmp_path, word)
    assert str(error.value).rpartition("error: ")[2] == snapshot


def test_versions_and_how_it_is_run_choose_no_case() -> None:
    unrelated = ("--qnn", "2.51.0", "--lab=x", "-o", "qnn_strict_known=true", "-q")
    chosen = ("-m", "device", "--backend", "gpu", "--dry-run", "-o", "qnn_graph=g", "a.py")
    words = selection(("pytest", *unrelated, *chosen))
    assert words == ("--qnn-backend=gpu", "--qnn-dry-run", "-m=device", "-o=qnn_graph=g", "a.py")
    assert selection(("pytest", *in_long_forms((*unrelated, *chosen)))) == words
    assert selection(("qnn-harness", "run", "--rounds", "5", "m.bin")) == ("m.bin", "run")


def test_all_names_are_ours_and_no_two_are_one() -> None:
    assert all(option.name.startswith("--qnn-") for option in OPTIONS)
    short = {option.short: option.name for option in OPTIONS}
    assert short == LONG
    assert len(short) == len(OPTIONS)
    assert short["--qnn"] == "--qnn-version"
    assert not short.keys() & set(short.values())


def test_short_forms_are_taken_for_long_ones() -> None:
    words = ["-k", "--device=a=b", "--qnn", ">=2.48", "x", "--qnn-lab=l", "--", "--device"]
    long = ["-k", "--qnn-device=a=b", "--qnn-version", ">=2.48", "x", "--qnn-lab=l", "--"]
    assert in_long_forms(words) == [*long, "--device"]
    assert in_long_forms(long) == long


def test_a_command_in_a_text_keeps_its_own_options() -> None:
    stash = pytest.Stash()
    stash[SPELLED] = {"--remedies": "qnn_remedies", "--qnn": "--qnn-version"}
    config = cast("pytest.Config", SimpleNamespace(stash=stash))
    text = "`qnn-harness model fit --remedies FILE` or --remedies; `pytest --qnn all`"
    expected = "`qnn-harness model fit --remedies FILE` or qnn_remedies; `pytest --qnn-version all`"
    assert with_our_options(config, text) == expected


def test_rounds_that_are_asked_for(tmp_path: Path) -> None:
    def asked(*words: str) -> Rounds:
        return rounds_option(read(tmp_path, *words).contexts)

    assert asked() == asked("qnn_rounds=1") == ONCE
    assert asked("qnn_rounds=auto") == Rounds(1000, 2, 2000)
    assert asked("qnn_rounds=auto", "qnn_warmup=0").warmup == 0
    # however many there are to be, the case must not hang over it
    longest = asked("qnn_rounds=5000", "qnn_warmup=3")
    assert (longest, longest.timeout_s) == (Rounds(5000, 3, 200_000), 300)
    full = asked("qnn_profile_run=full")
    assert full == Rounds(1024, 2, budget_ms=600_000, least_ms=60_000)
    assert full.timeout_s == 700
    with pytest.raises(ConfigError, match="leave out --rounds"):
        asked("qnn_profile_run=full", "qnn_rounds=1")
    with pytest.raises(ConfigError, match="--profile-run: a bundle runs as it was packed"):
        rounds_option(read(tmp_path, "qnn_profile_run=full").contexts, is_bundle=True)


def test_words_for_rounds() -> None:
    assert (rounds("auto"), rounds("7"), count("0")) == ("auto", 7, 0)
    for read, text in ((rounds, "0"), (rounds, "x"), (count, "-1"), (rounds, "100000")):
        with pytest.raises(argparse.ArgumentTypeError):
            read(text)


def test_steps_share_the_time_and_two_steps_the_rounds() -> None:
    assert Rounds(9, 2, 2000).shared(4) == Rounds(9, 2, 500)
    assert Rounds(9, 2, 2).shared(100).budget_ms == 1
    assert Rounds(9, 2).shared(4) == Rounds(9, 2)
    assert Rounds(9, 2, 501, 31).halves() == (Rounds(5, 2, 250, 15), Rounds(4, 0, 250, 15))
    assert ONCE.halves() == (ONCE, ONCE)
