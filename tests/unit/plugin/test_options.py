"""The one table of options, beside what is made of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from _pytest.config.argparsing import Parser

from harness.cli.run import run
from harness.lab.inventory import SIMULATED_LAB
from harness.plugin.collection import selection
from harness.plugin.options import (
    LONG,
    OPTIONS,
    Options,
    add_options,
    add_short_forms,
    in_long_forms,
    read_options,
)

ROOT = Path(__file__).parents[3]
NOT_PYTESTS = ("files", "more", "as_json", "quick")


def read(root: Path, *words: str) -> Options:
    """What a command line is read into, in a folder below the root."""
    parser = Parser(_ispytest=True)
    add_options(parser)
    add_short_forms(parser)
    given = parser.parse([*words])
    place = SimpleNamespace(dir=root / "below", args=words)

    def get(name: str) -> Any:
        return getattr(given, name.removeprefix("--").replace("-", "_"))

    config = SimpleNamespace(getoption=get, invocation_params=place, rootpath=root)
    return read_options(cast("pytest.Config", config))


def test_nothing_is_given(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert (found.lab, found.reports) == (tmp_path / "devices.yaml", tmp_path / "reports")
    assert (found.qnn, found.qnn_given, found.known_issues) == (["latest"], False, None)
    assert (found.retries, found.preflight, found.fan_out) == (2, "warn", None)
    none = (None, None, None, None, None, None)
    nothing = type(found.contexts)((), (), (), None, None, 0.0, 1, *none, "refuse")
    assert found.contexts == nothing


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
    "told",
    [
        *("-rA", "-r A", "--maxfail=1", "--html=a.html", "--html a.html", "--alluredir=al"),
        *("--cov=tests", "--cov", "--cov-report xml", "--self-contained-html", "-vvv", "-x"),
        *("--log-cli-level=INFO", "--log-file x", "--json-report", "--report-log=x", "-W error"),
        *(
            "--cov suites",
            "--cov-append",
            "--cov-fail-under 80",
            "--no-cov-on-fail",
            "-xvs",
            "-vvvv",
        ),
        *("--junit-xml j.xml", "--reruns 2", "--reruns=2", "--timeout-method=thread", "--ff"),
    ],
)
def test_how_pytest_reports_chooses_no_case(told: str) -> None:
    asked = ("pytest", "-m", "device", "-k", "tiny")
    assert selection((*asked, *told.split())) == selection(asked)
    assert selection((*asked[:3], *told.split(), *asked[3:])) == selection(asked)


def test_paths_lists_and_bounds(tmp_path: Path) -> None:
    words = ("--lab=x.yaml", "--reports=r", "--qnn=>=2.48,<2.51", "--qnn=2.47.0", "--device=a,b")
    more = ("--resume=last", "--retries=-1", "--lease-timeout=-1", "--each-soc")
    files = ("--contexts=m.pte", "--contexts-number=1,2", "--contexts-inputs=in", "--known-issues=")
    found, below = read(tmp_path, *words, *more, *files), tmp_path / "below"
    assert (found.lab, found.reports) == (below / "x.yaml", below / "r")
    assert (found.qnn, found.qnn_given, found.devices) == (
        [">=2.48,<2.51", "2.47.0"],
        True,
        ["a", "b"],
    )
    assert found.resume == below / "r/last"
    assert (found.retries, found.lease_timeout_s, found.fan_out) == (0, 0.0, "soc")
    assert found.contexts.paths == (below / "m.pte",)
    assert (found.contexts.numbers, found.contexts.inputs) == (("1", "2"), below / "in")
    assert found.known_issues == tmp_path / "suites/known_issues.yaml"
    assert read(tmp_path).known_issues is None
    (tmp_path / "known_issues.yaml").touch()
    assert read(tmp_path).known_issues == tmp_path / "known_issues.yaml"


def test_run_has_what_the_table_has_words_for_and_hands_on_pytests_names() -> None:
    own = {str(one.name): one for one in run.params if one.name not in NOT_PYTESTS}
    assert own.keys() == {one.parameter for one in OPTIONS if one.run is not None}
    assert own["contexts_number"].opts == ["--contexts"]
    assert own["engine"].opts == ["--engine"]
    assert own["lab"].opts == ["--lab"]


def test_versions_and_how_it_is_run_choose_no_case() -> None:
    said = ("--qnn", "2.51.0", "--lab=x", "--strict-known", "-q", "--lease-timeout", "9")
    chosen = ("-m", "device", "--backend", "gpu", "--plan", "--any-device", "a.py")
    found = selection(("pytest", *said, *chosen))
    assert found == ("--qnn-any-device", "--qnn-backend=gpu", "--qnn-plan", "-m=device", "a.py")
    assert selection(("pytest", *in_long_forms((*said, *chosen)))) == found


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
