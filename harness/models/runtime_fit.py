"""Runtimes, SoCs and releases of engines that fit a model file, without running it (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, Literal, cast, get_args

from harness.core.json_record import Part, Printout, RecordText
from harness.core.socs import SOCS, Target
from harness.core.versions import QnnVersion
from harness.models.inspection_report import size
from harness.runtimes.catalog import CatalogEntry
from harness.runtimes.engine_versions import ENGINE_RELEASES, EngineRelease
from harness.runtimes.preflight import ContextFacts, PreflightInput, TargetFacts, preflight
from harness.runtimes.preflight_findings import Finding
from harness.runtimes.runtime import LibraryFacts

Loading = Literal["refused", "unknown", "loads"]
_ORDER: Final = get_args(Loading)


class FittingRuntime(Part):
    """A runtime: whether it loads all contexts of a file, and each; the findings of preflight.

    One that is not cached is judged by its version alone.
    """

    runtime: CatalogEntry
    loads: Loading
    contexts: tuple[Loading, ...]
    findings: tuple[Finding, ...]


class FileFit(Part):
    """A model file and what fits it.

    `least_qnn` is the oldest QNN that loads all contexts; no newest one is known. `socs` have the
    HTP and the VTCM for all. `compiled_by` are engines that compile a file without contexts.
    `unknown` is what could not be found out.
    """

    file: RecordText
    kind: str
    contexts: tuple[ContextFacts, ...]
    least_qnn: RecordText | None
    socs: tuple[str, ...]
    runtimes: tuple[FittingRuntime, ...]
    engines: tuple[EngineRelease, ...]
    compiled_by: tuple[str, ...]
    unknown: tuple[RecordText, ...]

    @property
    def fits(self) -> bool:
        return not self.contexts or any(each.loads == "loads" for each in self.runtimes)


class RuntimesFit(Printout):
    """`runtimes fit --json`; `device` is the one that was asked for."""

    device: RecordText | None
    files: tuple[FileFit, ...]


def least_qnn(contexts: Sequence[ContextFacts]) -> QnnVersion | None:
    """Return the oldest QNN that loads all contexts, None if a compiler is unknown."""
    compilers = [QnnVersion.found_in(context.compiler) for context in contexts]
    return max(filter(None, compilers), default=None) if all(compilers) else None


def file_fit(
    file: str,
    kind: str,
    contexts: Sequence[ContextFacts],
    runtimes: Mapping[CatalogEntry, Sequence[LibraryFacts] | None],
    compiled_by: Sequence[str],
    device: TargetFacts | None = None,
) -> FileFit:
    """Return what fits a file; the libraries of a runtime are None if it is not cached.

    Without a device each context meets one that has its HTP.
    """
    least = least_qnn(contexts)
    archs = {context.htp_arch for context in contexts}
    need = max((context.vtcm_bytes or 0 for context in contexts), default=0)
    socs = [soc for soc in SOCS.values() if soc.htp_arch and {soc.htp_arch} == archs]
    unknown = [f"the VTCM of {soc.name}" for soc in socs if soc.vtcm_mb is None]
    for context in contexts:
        facts: dict[str, Any] = {"compiler": context.compiler}
        if context.backend == "htp":
            facts |= {"HTP": context.htp_arch, "VTCM": context.vtcm_bytes}
        unknown += [f"the {name} of {context.name}" for name, fact in facts.items() if not fact]
    return FileFit(
        file=file,
        kind=kind,
        contexts=tuple(contexts),
        least_qnn=str(least) if least else None,
        socs=tuple(soc.name for soc in socs if soc.vtcm_mb and need <= soc.vtcm_mb << 20),
        runtimes=tuple(_runtime(*each, contexts, device) for each in runtimes.items()),
        engines=tuple(
            each.judged(least)
            for each in ENGINE_RELEASES.values()
            if contexts and kind in each.kinds
        ),
        compiled_by=tuple(compiled_by),
        unknown=tuple(unknown),
    )


def _runtime(
    entry: CatalogEntry,
    files: Sequence[LibraryFacts] | None,
    contexts: Sequence[ContextFacts],
    device: TargetFacts | None,
) -> FittingRuntime:
    findings, loads, archs = dict[Finding, None](), list[Loading](), set[int | None]()
    for context in contexts:
        target = device or TargetFacts(cast(Target, entry.target), htp_arch=context.htp_arch)
        subject = PreflightInput(files or (), target, context.backend, [context], entry.qnn)
        about = [each for each in preflight(subject) if files is not None or each.context]
        findings |= dict.fromkeys(about)
        archs |= set() if target.simulates_htp else {target.arch}
        # preflight warns of a newer HTP, which may refuse it
        is_same = context.htp_arch and context.htp_arch == target.arch
        fits_htp = is_same or target.simulates_htp or context.backend != "htp"
        loads.append("loads" if context.compiler and fits_htp else "unknown")
        if any(finding.severity == "error" for finding in about):
            loads[-1] = "refused"
    # a device has one HTP
    worst: Loading = min([*loads, "unknown" if len(archs) > 1 else "loads"], key=_ORDER.index)
    return FittingRuntime(
        runtime=entry, loads=worst, contexts=tuple(loads), findings=tuple(findings)
    )


def fit_lines(report: RuntimesFit) -> Iterator[str]:
    """Yield what fits each file as text."""
    for file in report.files:
        yield f"{file.file}: {file.kind}"
        for context in file.contexts:
            vtcm = size(context.vtcm_bytes) if context.vtcm_bytes else "?"
            line = f"    {context.name}: made by QNN {context.compiler or '?'} for "
            line += f"HTP v{context.htp_arch or '?'}, VTCM {vtcm}"
            limit = context.memory_limit_mb
            yield line + (f", memory limit {limit} MiB" if limit else "")
        if file.contexts:
            least = f"{file.least_qnn} or newer" if file.least_qnn else "of an unknown version"
            yield f"    needs QNN {least}"
            yield f"    SoCs: {', '.join(file.socs) or 'none known'}"
        else:
            tools = " or ".join(file.compiled_by) or "QNN's own tools"
            yield f"    not compiled yet: any QNN fits; {tools} can compile it"
        rows: dict[tuple[str, str], list[str]] = {}
        for each in file.runtimes:
            name = each.runtime.name + (
                "" if each.runtime.cached else " (not cached: judged by version)"
            )
            causes = [text.explanation for text in each.findings if text.severity != "info"]
            cause = f": {causes[0]}" if causes else ""
            rows.setdefault((f"{each.loads:<8} QNN {name}", cause), []).append(each.runtime.target)
        for (begin, cause), targets in rows.items():
            yield f"    {begin} for {', '.join(targets)}{cause}"
        for (engine, verdict), releases in groupby(
            file.engines, lambda each: (each.engine, each.verdict)
        ):
            versions = (f"{release.version} (QNN {release.qnn})" for release in releases)
            yield f"    {verdict:<8} {engine} {', '.join(versions)}"
        yield from (f"    unknown  {text}" for text in file.unknown)
