"""docs/grafana: each query runs on a real PostgreSQL and says what is so."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from harness.history.database import (
    CauseSummary,
    Database,
    DeviceSummary,
    NightSummary,
    open_database,
    store_night,
)
from harness.history.importing import import_run
from harness.results.record import CaseRecord
from tests.integration.device_runs import ROOT
from tests.integration.history.postgres_server import PostgresServer
from tests.unit.history.runs import attempt, run_folder

BOARD: dict[str, Any] = json.loads((ROOT / "docs/grafana/qnn-harness.json").read_text())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
OF_SQL = {panel["title"]: panel for panel in PANELS if "rawSql" in panel["targets"][0]}
DEVICES = ("p1", "p2", "q")


def ran(words: str, device: str, soc: str = "SM8750", **more: Any) -> CaseRecord:
    record = attempt(words, device=device, **more)
    return record.model_copy(update={"device": record.device.model_copy(update={"soc": soc})})


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """Three runs of three phones: in the second `a` fails on one."""
    reports = tmp_path_factory.mktemp("reports")
    started = PostgresServer()
    history = open_database(started.url)
    good = [ran("a passed", device) for device in DEVICES[:2]] + [ran("a passed", "q", "SM8650")]
    second = [
        ran("a failed message=it_broke", "p1"),
        ran("a failed n=1", "p2"),
        ran("a passed n=2", "p2"),
        ran("a failed known=k", "q", "SM8650"),
        ran("b error", "q", "SM8650"),
    ]
    for records in (good, second, good):
        run = import_run(history, run_folder(reports, *records)).run
    summaries = {name: DeviceSummary(state=name, since="") for name in ("good", "bad")}
    causes = {"c": CauseSummary()}
    store_night(history, NightSummary(night="n", run=run, devices=summaries, causes=causes))
    yield history
    started.stop()


def panel_rows(database: Database, title: str) -> list[dict[str, Any]]:
    """Return the rows of a panel: macros and variables are filled in as Grafana does."""
    (target,) = OF_SQL[title]["targets"]
    sql = target["rawSql"]
    for variable, meant in (
        ("$__timeFrom()", "'2000-01-01T00:00:00Z'"),
        ("$__timeTo()", "'2100-01-01T00:00:00Z'"),
        ("$device", ",".join(f"'{device}'" for device in DEVICES)),
    ):
        sql = sql.replace(variable, meant)
    assert "$" not in sql
    with database.transaction(writes=False) as connection:
        result = connection.exec_driver_sql(sql.replace("%", "%%"))
        return [dict(row) for row in result.mappings()]


@pytest.mark.needs("psql")
@pytest.mark.parametrize("title", OF_SQL)
def test_each_query_runs_and_finds_something(database: Database, title: str) -> None:
    rows = panel_rows(database, title)
    assert rows
    if OF_SQL[title]["targets"][0]["format"] == "time_series":
        assert all(row["time"].year >= 2020 for row in rows)


@pytest.mark.needs("psql")
def test_they_say_what_is_so(database: Database) -> None:
    verdicts = panel_rows(database, "Verdicts of each run")
    assert [(row["good"], row["bad"]) for row in verdicts] == [(3, 0), (2, 1), (3, 0)]
    lost = panel_rows(database, "Without a verdict")
    assert [row["lost to the lab"] for row in lost] == [0, 1, 0]
    (cause,) = panel_rows(database, "What fails, by cause")
    shown = {name: cause[name] for name in ("failure", "cases", "devices", "on_soc", "failures")}
    assert shown == {
        "failure": "call|1002|it broke",
        "cases": 1,
        "devices": 1,
        "on_soc": "SM8750",
        "failures": 1,
    }
    first, *others = panel_rows(database, "Devices and versions")
    assert (first["device"], first["fail"], first["judged"]) == ("p1", 1, 3)
    assert float(first["percent"]) == 33.3
    assert {row["fail"] for row in others} == {0}
    assert [point["device"] for point in panel_rows(database, "Devices now")] == list(DEVICES)
    (night,) = panel_rows(database, "Nights")
    assert (night["night"], night["open_causes"], night["devices_not_well"]) == ("n", 1, 1)
    (variable,) = (item for item in BOARD["templating"]["list"] if item["type"] == "query")
    with database.transaction(writes=False) as connection:
        assert [name for (name,) in connection.exec_driver_sql(variable["query"])] == list(DEVICES)
