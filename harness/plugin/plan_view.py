"""`--dry-run`: the cases that would run and the files each would push."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, Literal

import pytest
from pydantic import BaseModel
from rich.filesize import decimal

from harness.bench.provisioner import FileToPush
from harness.core.errors import ConfigError
from harness.core.json_record import Schema1
from harness.core.outgoing_text import counted
from harness.core.yaml_document import join_mistakes
from harness.plugin.collection import need_of
from harness.plugin.terminal import write_line

if TYPE_CHECKING:
    from harness.plugin.device_run import Run


class CasePlan(BaseModel, frozen=True):
    """A case and the files it pushes; `error` says why it cannot run, None if it can."""

    case: str
    device: str
    files: tuple[FileToPush, ...] = ()
    error: str | None = None


class PlanReport(BaseModel, frozen=True):
    """The output of `run --dry-run --json`.

    `files` counts the different files of all devices, `bytes` is their total size: what is pushed
    if no device has any of them yet.
    """

    schema_number: Schema1 = 1
    kind: Literal["plan"] = "plan"
    cases: tuple[CasePlan, ...]
    files: int
    bytes: int


PLAN: Final = pytest.StashKey[PlanReport]()


def show_plan(session: pytest.Session, run: Run) -> None:
    """Print the plan, and store it in the configuration's stash as `PLAN`.

    Raises one ConfigError for all cases with wrong input, which are shown with the reason, and
    InfraError if a library or context cannot be made.
    """
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    assert reporter is not None
    wrong: list[ConfigError] = []
    plans: list[CasePlan] = []
    for item, need in ((item, need_of(item)) for item in session.items):
        if need is not None:
            plan = CasePlan(case=item.nodeid, device=need.placement.device)
            try:
                files = tuple(run.workbench.materials(need).files_to_push())
                plan = plan.model_copy(update={"files": files})
            except ConfigError as error:
                wrong.append(error)
                plan = plan.model_copy(update={"error": str(error)})
            plans.append(plan)
            write_line(reporter, _line(plan))
    distinct = {(plan.device, file) for plan in plans for file in plan.files}
    report = PlanReport(
        cases=tuple(plans), files=len(distinct), bytes=sum(file.size for _, file in distinct)
    )
    session.config.stash[PLAN] = report
    write_line(
        reporter,
        f"\n{counted(len(plans), 'case')}; {counted(report.files, 'different file')}, "
        f"{decimal(report.bytes)} if no device has any of them yet; nothing was run",
    )
    if wrong:
        raise join_mistakes(wrong)


def _line(plan: CasePlan) -> str:
    if plan.error is not None:
        return f"{plan.case}  cannot run: {plan.error}"
    sizes = Counter[str]()
    for file in plan.files:
        sizes[file.origin] += file.size
    return f"{plan.case}: {', '.join(f'{name} ({decimal(n)})' for name, n in sizes.items())}"
