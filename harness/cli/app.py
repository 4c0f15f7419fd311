"""`qnn-harness app`: Android apps that bring QNN along."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from harness.app.checks import TARGET, AppFinding, AppReport, Phone, report
from harness.app.package import Answers, read_app
from harness.app.phone_run import END_S, AppRunReport, component_of, require_package, run_app
from harness.bench.provisioner import preflight_device
from harness.cli.common_options import CommandGroup, json_option, lab_option
from harness.cli.explain import explanation_lines, surest_first
from harness.cli.lab_options import (
    SERIAL,
    device_option,
    duration_option,
    files_argument,
    host_runtime,
    open_catalog,
    open_lab,
    output_option,
)
from harness.cli.say import say, say_result
from harness.containers.artefact import Piece
from harness.core.errors import NEGATIVE, ConfigError, InfraError
from harness.core.outgoing_text import counted
from harness.core.state_folders import cache_root
from harness.evidence.case_evidence import SUMMARY
from harness.lab.facts import ask_public_libraries
from harness.lab.inventory import load_lab
from harness.lab.lab_device import AttachedDevice
from harness.models.context_metadata import read_each
from harness.probe.build import ProbeBuilder
from harness.results.run_folder import making_folders, new_run_id

_MAX_SHOWN = 4
_REPORTS = Path("reports")


@click.group(cls=CommandGroup)
def app() -> None:
    """Check and run Android apps that bring QNN along."""


@app.command("check")
@files_argument
@device_option("Phone to check the app for.")
@lab_option
@json_option
def check_command(
    files: tuple[Path, ...], device: str | None, lab_file: Path, as_json: bool
) -> int:
    """Check whether QNN can work in an app: an .apk, all APKs of a split set, or an .aab.

    Nothing is installed or executed. With --device the app is also checked against that phone:
    its Android version, its HTP, and the libraries that it offers to apps.

    \b
    Exit codes: 0 nothing would stop it, 1 something would, 2 a FILE is no app, 3 the phone does
    not answer.
    """
    inside = read_app(files, lambda pieces: _metadata(pieces, lab_file))
    with contextlib.ExitStack() as leased:
        phone = device and leased.enter_context(_phone(device, lab_file, "app check"))[1]
        result = report(inside, phone or None)
    say_result(result, _lines(result), as_json)
    return NEGATIVE if any(finding.severity == "error" for finding in result.findings) else 0


@app.command("run")
@files_argument
@device_option("Phone (default: ANDROID_SERIAL).", required=True, envvar=SERIAL)
@click.option("--activity", metavar="NAME", help="Activity to start (default: the launcher's).")
@duration_option("--for", "watch_s", "How long to watch the app.", default="10s")
@duration_option("--timeout", "timeout_s", "Time for everything.", default="60s")
@click.option("-g", "--grant", is_flag=True, help="Grant all permissions that the app requests.")
@output_option("Folder for the evidence (default: a new one in reports).", metavar="FOLDER")
@lab_option
@json_option
def run_command(
    files: tuple[Path, ...],
    device: str,
    activity: str | None,
    watch_s: float,
    timeout_s: float,
    grant: bool,
    output: Path | None,
    lab_file: Path,
    as_json: bool,
) -> int:
    """Install and start an app on a phone, and explain its log: an .apk, or all of a split set.

    The app's log is explained as by `explain`, and kept as evidence. Afterwards the app is stopped,
    and uninstalled if it was not installed before. Another version of it is replaced as by `adb
    install -r -t`: its data are kept, and the new version stays.

    \b
    Exit codes: 0 nothing wrong was found, 1 the app was refused, crashed, hung or ended, or a cause
    was found, 2 wrong input, 3 the phone failed.
    """
    if watch_s < 1:
        raise ConfigError("is too short; name 1s or more", field="--for")
    if timeout_s < watch_s + END_S:
        problem = f"is too short; --for {watch_s:.0f}s needs {watch_s + END_S:.0f}s or more"
        raise ConfigError(problem, field="--timeout")
    inside = read_app(files, lambda pieces: _metadata(pieces, lab_file))
    if inside.is_bundle:
        problem = (
            "is a bundle, which no phone installs; build an APK with `bundletool build-apks "
            "--mode=universal`, and unpack it from the .apks"
        )
        raise ConfigError(problem, file=files[0], field="FILE")
    require_package(package := inside.manifest.package)
    if activity is not None:
        component_of(package, activity)
    with making_folders(output or _REPORTS):
        folder = output or _REPORTS / f"{new_run_id()}-app"
    with _phone(device, lab_file, "app run") as (attached, phone):
        result = run_app(
            attached,
            files,
            package,
            report(inside, phone).findings,
            folder,
            activity=activity,
            grant=grant,
            watch_s=watch_s,
            timeout_s=timeout_s,
        )
    say_result(result, _run_lines(result), as_json)
    return result.exit_code


def _metadata(pieces: Sequence[Piece], lab_file: Path) -> Answers:
    """Return the metadata of contexts; nothing of them where QNN's library cannot be had."""
    catalog = open_catalog(lab_file)
    try:
        runtime = host_runtime(catalog, None)
        probes = ProbeBuilder(cache_root() / "probe")
        return read_each(probes, runtime.library("libQnnSystem.so"), pieces)
    except (InfraError, ConfigError) as error:
        say(f"warning: contexts were read only in part: {error}", err=True)
        return [{}] * len(pieces)


@contextlib.contextmanager
def _phone(name: str, lab_file: Path, command: str) -> Iterator[tuple[AttachedDevice, Phone]]:
    """Lease a phone, and ask it what it offers to apps."""
    lab = load_lab(lab_file, names=[name])
    lab.select([name])
    with open_lab(lab, command) as opened:
        attached = opened.device(name).attach()
        if attached.target != TARGET:
            problem = f"device {name} is not an Android phone: its target is {attached.target}"
            raise ConfigError(problem, field="--device")
        public = ask_public_libraries(attached.transport)
        yield attached, Phone(name, preflight_device(attached), public)


def _lines(result: AppReport) -> Iterator[str]:
    packing = "files" if result.extracts_libraries else "inside the APK"
    yield (
        f"{result.package}: minSdk {result.min_sdk}, targetSdk {result.target_sdk}, "
        f"libraries are {packing} after the installation"
    )
    if phone := result.device:
        offers = "?" if phone.offers is None else ", ".join(phone.offers) or "no DSP library"
        facts = f"Android API {phone.android_api or '?'}, HTP v{phone.htp_arch or '?'}"
        yield f"{phone.name}: {facts}, offers {offers} to apps"
    for name, version in result.components.items():
        yield f"    {name} {version or 'of an unknown version'}"
    for model in result.models:
        stored = "stored" if model.is_stored else "compressed"
        yield f"    {model.kind}, {model.size:,} bytes, {stored}: {model.place}"
        for context in model.contexts:
            arch = f"HTP v{context.htp_arch}" if context.htp_arch else "an unknown HTP"
            soc = f", SoC model {context.soc_model}" if context.soc_model else ""
            yield f"        made by QNN {context.compiler or 'of an unknown build'} for {arch}{soc}"
    if not result.uses_qnn:
        yield "the APK contains nothing of QNN to check"
        return
    for finding in result.findings:
        yield from _finding_lines(finding)
    errors = sum(finding.severity == "error" for finding in result.findings)
    where = f" on {phone.name}" if phone else ""
    number = counted(len(result.findings), "finding")
    yield f"{number}; {errors or 'nothing'} would stop it{where}"


def _run_lines(result: AppRunReport) -> Iterator[str]:
    before = result.before
    there = f"replaces version {before}, and stays" if before else "was not installed before"
    yield f"{result.package} on {result.device}: {there}"
    if result.activity:
        shown = f"shown after {result.shown_ms} ms" if result.shown_ms else "no window appeared"
        yield f"started {result.activity}: {shown}"
    watched = f" (watched for {result.watched_s:g} s)" if result.activity else ""
    yield f"{result.outcome}{watched}"
    if result.sign:
        yield f"    {result.sign}"
    located = result.explanation.located
    if result.outcome != "running" or (located and located.in_scope):
        yield from explanation_lines(surest_first(result.explanation))
    for finding in result.findings:
        if finding.severity == "error":
            yield from _finding_lines(finding)
    if SUMMARY not in result.files:
        yield from (f"note: {note}" for note in result.notes)
    yield f"evidence: {result.folder}"
    if not result.is_restored:
        yield f"warning: {result.package} may still be on the phone; `adb uninstall` removes it"
    if result.problem:
        yield f"error: {result.problem}"


def _finding_lines(finding: AppFinding) -> Iterator[str]:
    yield f"{finding.severity} {finding.code}: {finding.explanation}"
    yield from (f"    in {place}" for place in finding.evidence[:_MAX_SHOWN])
    yield f"    what helps: {finding.remedy}"
    if finding.source:
        yield f"    see {finding.source}"
