"""JSON Schemas of the files that people and programs exchange with the harness.

`python -m harness.cli.schema` writes them to docs/schema.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal

from pydantic import BaseModel, TypeAdapter
from pydantic._internal._docs_extraction import extract_docstrings_from_cls

from harness.app.checks import AppReport
from harness.app.phone_run import AppRunReport
from harness.bisect.result import BisectionResult
from harness.cli.bisect import BisectionPlanned
from harness.cli.devices import DevicesListed
from harness.cli.run import OutputDrifted
from harness.cli.runtimes import RuntimesListed, RuntimesShown
from harness.containers.manifest import Manifest
from harness.core.files import write_whole
from harness.diagnosis.explain_log import Explanation
from harness.doctor.check_results import DoctorReport
from harness.experiments.remedy_ranking import RemedyReport
from harness.history.comparison_text import ComparisonReport
from harness.history.timeline import HistoryReport
from harness.lab import config_fields, device_config, health, inventory
from harness.lab.config_fields import RuntimeSource
from harness.lab.device_config import DeviceConfig
from harness.lab.inventory import lab_model
from harness.lab.tagged_union import TaggedModel
from harness.labgrid import source
from harness.layers.divergence import Divergence
from harness.models.fit_text import Fit
from harness.models.inspection_report import Inspection
from harness.models.model_diff import ModelDiff
from harness.models.runtime_fit import RuntimesFit
from harness.nightly.night import Night
from harness.notify import channels
from harness.plugin.plan_view import PlanReport
from harness.reduce.reduction import Result
from harness.results import known_issues
from harness.results.known_issues import KnownIssues
from harness.results.record import JournalLine
from harness.runtimes import source_kinds

FOLDER: Final = Path("docs/schema")
_OF_LAB: Final = (channels, device_config, config_fields, health, inventory, source, source_kinds)
_DIALECT = "https://json-schema.org/draft/2020-12/schema"

Printed = (
    DevicesListed | RuntimesListed | RuntimesShown | RuntimesFit | BisectionPlanned | OutputDrifted
)
"""The documents of commands without a schema file of their own."""


def schemas() -> dict[str, str]:
    """Name of each schema file and its text."""
    documents = {
        # As it is written: every key is there.
        "results.schema.json": _schema(JournalLine, "A line of results.jsonl"),
        "app.schema.json": _schema(AppReport, "What app check --json prints"),
        "app-run.schema.json": _schema(AppRunReport, "What app run --json prints"),
        "doctor.schema.json": _schema(DoctorReport, "What doctor --json prints"),
        "bisect.schema.json": _schema(
            BisectionResult, "What bisect --json prints, and its result.json", "validation"
        ),
        "compare.schema.json": _schema(ComparisonReport, "What compare --json prints"),
        "diff.schema.json": _schema(ModelDiff, "What model diff --json prints"),
        "explain.schema.json": _schema(Explanation, "What explain --json prints"),
        "fit.schema.json": _schema(Fit, "What model fit --json prints"),
        "history.schema.json": _schema(HistoryReport, "What history list --json prints"),
        "inspect.schema.json": _schema(Inspection, "What model inspect --json prints"),
        "layers.schema.json": _schema(Divergence, "What model layers --json prints"),
        "remedies.schema.json": _schema(RemedyReport, "What model fit --remedies --json prints"),
        "reduce.schema.json": _schema(Result, "What model reduce --json prints"),
        "nightly.schema.json": _schema(Night, "What nightly --json prints, and its nightly.json"),
        "printed.schema.json": _schema(Printed, "What other commands print with --json"),
        "plan.schema.json": _schema(PlanReport, "What run --dry-run --json prints"),
        "devices.schema.json": _described(_lab_schema(), lab_model(), *_OF_LAB),
        "manifest.schema.json": _schema(
            Manifest, "The manifest.json of model extract, and of a bundle", "validation"
        ),
        "known_issues.schema.json": _described(
            _schema(KnownIssues, "known_issues.yaml", "validation"), KnownIssues, known_issues
        ),
    }
    return {name: json.dumps(schema, indent=2) + "\n" for name, schema in documents.items()}


def main() -> None:
    """Write the files."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in schemas().items():
        write_whole(FOLDER / name, text.encode())


def _schema(
    model: Any, title: str, mode: Literal["serialization", "validation"] = "serialization"
) -> dict[str, Any]:
    document = TypeAdapter(model).json_schema(by_alias=True, mode=mode)
    return {"$schema": _DIALECT} | document | {"title": title}


def _lab_schema() -> dict[str, Any]:
    """Return the schema of devices.yaml, with each kind of entry in `devices` and `runtimes`."""
    schema = _schema(lab_model(), "devices.yaml", "validation")
    unions: dict[str, type[TaggedModel]] = {"devices": DeviceConfig, "runtimes": RuntimeSource}
    for section, union in unions.items():
        kinds = {kind.__name__: kind.model_json_schema() for kind in union.kinds().values()}
        references = [{"$ref": f"#/$defs/{name}"} for name in kinds]
        schema["properties"][section]["items"] = {"oneOf": references}
        del schema["$defs"][union.__name__]
        for kind in kinds.values():
            kinds = kinds | kind.pop("$defs", {})
        schema["$defs"] = dict(sorted({**schema["$defs"], **kinds}.items()))
    return schema


def _described(
    schema: dict[str, Any], whole: type[BaseModel], *modules: ModuleType
) -> dict[str, Any]:
    """Add the texts below the fields of the modules' models to the schema of `whole`.

    Pydantic could read them as well, but would do so each time a model is defined.
    """
    models = {whole.__name__: schema} | schema["$defs"]
    for module in modules:
        for name, model in inspect.getmembers(module, inspect.isclass):
            if (
                "properties" in models.get(name, {})
                and issubclass(model, BaseModel)
                and model.__module__ == module.__name__
            ):
                properties = models[name]["properties"]
                for field, text in _texts_below(model).items():
                    if field not in model.model_fields:
                        continue
                    key = model.model_fields[field].alias or field
                    properties[key] = dict(sorted({**properties[key], "description": text}.items()))
    return schema


def _texts_below(model: type[BaseModel]) -> dict[str, str]:
    bases = [base for base in reversed(model.__mro__) if base.__module__.startswith("harness.")]
    return {
        field: text
        for base in bases
        for field, text in extract_docstrings_from_cls(base, use_inspect=True).items()
    }


if __name__ == "__main__":
    main()
