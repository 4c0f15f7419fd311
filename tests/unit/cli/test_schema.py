"""The shipped JSON Schemas are current and say the same as the models."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings

from harness.cli import schema
from harness.lab.health import DeviceEvent
from harness.results.record import CaseRecord
from tests.unit.results.records import record, records

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / schema.FOLDER
SCHEMAS = {name: json.loads(text) for name, text in schema.schemas().items()}
LINE = SCHEMAS["results.schema.json"]


def problems(name: str, value: Any) -> list[str]:
    validator = jsonschema.Draft202012Validator(SCHEMAS[name])
    return [problem.message for problem in validator.iter_errors(value)]


def test_the_shipped_files_are_current() -> None:
    assert {path.name: path.read_text("utf-8") for path in FOLDER.iterdir()} == schema.schemas()


@settings(max_examples=50)
@given(records())
def test_every_record_satisfies_the_schema(record: CaseRecord) -> None:
    assert problems("results.schema.json", json.loads(record.model_dump_json())) == []


@pytest.mark.parametrize(
    "changed",
    [
        {"outcome": "broken"},
        {"outcome": "failed"},
        {"cause": "target"},
        {"schema": 3},
        {"colour": "red"},
        {"attempt": 0},
        {"error": {"code": "1002", "signature": "s"}},
    ],
)
def test_what_is_no_record_is_none_for_the_schema_either(changed: dict[str, object]) -> None:
    line = record().model_dump(mode="json") | changed
    assert problems("results.schema.json", line)
    with pytest.raises(ValueError):
        CaseRecord.model_validate(line)


@pytest.mark.parametrize("kind", ["CaseRecord", "DeviceEvent"])
def test_all_keys_of_a_line_are_required(kind: str) -> None:
    line = LINE["$defs"][kind]
    assert set(line["required"]) == set(line["properties"])


def test_an_event_satisfies_the_schema() -> None:
    fields = {"device": "phone", "event": "reboot", "state": "good", "duration_s": 31.5}
    event = DeviceEvent(**fields, started=datetime.now(UTC))
    line = json.loads(event.model_dump_json())
    assert problems("results.schema.json", line) == []
    assert problems("results.schema.json", line | {"state": "fine"})


def test_the_shipped_yaml_files_satisfy_their_schemas() -> None:
    lab = yaml.safe_load((ROOT / "devices.yaml").read_text())
    assert problems("devices.schema.json", lab) == []
    assert problems("devices.schema.json", lab | {"colour": "red"})
    issues = json.loads(
        json.dumps(yaml.safe_load((ROOT / "suites/known_issues.yaml").read_text()), default=str)
    )
    assert problems("known_issues.schema.json", issues) == []


def test_no_default_is_claimed_that_depends_on_the_device() -> None:
    fields = SCHEMAS["devices.schema.json"]["$defs"]["SimulatedDeviceConfig"]["properties"]
    names = ("htp_arch", "adreno", "prepares_gpu")
    assert [fields[name].get("default") for name in names] == [None] * 3
