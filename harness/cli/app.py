"""`qnn-harness app`: Android apps that bring QNN along."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from harness.app.checks import TARGET, AppReport, Phone, report
from harness.app.package import Answers, read_app
from harness.bench.provisioner import preflight_device
from harness.cli.lab_options import (
    files_argument,
    host_runtime,
    json_option,
    lab_option,
    open_catalog,
    open_lab,
)
from harness.cli.say import say, say_result
from harness.containers.artefact import Piece
from harness.core.errors import ConfigError, InfraError
from harness.core.outgoing_text import counted
from harness.core.state_folders import cache_root
from harness.lab.facts import ask_public_libraries
from harness.lab.inventory import load_lab
from harness.models.context_metadata import read_each
from harness.probe.build import ProbeBuilder

_NEGATIVE = 1
_MAX_SHOWN = 4


@click.group()
def app() -> None:
    """Check Android apps that bring QNN along."""


@app.command("check")
@files_argument
@click.option("-s", "--device", metavar="NAME", help="A phone that it is to run on.")
@lab_option
@json_option
def check_command(
    files: tuple[Path, ...], device: str | None, lab_file: Path, as_json: bool
) -> int:
    """Say what would stop QNN in an app: an .apk, all APKs of a split set, or an .aab.

    Nothing is installed or executed. With --device the phone is asked for its Android, its HTP and
    the libraries that it offers to apps. An app without QNN gives no findings.

    \b
    Exit codes: 0 nothing would stop it, 1 something would, 2 a FILE is no app, 3 the phone does
    not answer.
    """
    inside = read_app(files, lambda pieces: _metadata(pieces, lab_file))
    phone = None if device is None else _phone(device, lab_file)
    result = report(inside, phone)
    say_result(result, _lines(result), as_json)
    return _NEGATIVE if any(finding.severity == "error" for finding in result.findings) else 0


def _metadata(pieces: Sequence[Piece], lab_file: Path) -> Answers:
    """Return the metadata of contexts; nothing of them where QNN's library cannot be had."""
    catalog = open_catalog(lab_file)
    try:
        runtime = host_runtime(catalog, None)
        probes = ProbeBuilder(cache_root() / "probe")
        return read_each(probes, runtime.library("libQnnSystem.so"), pieces)
    except (InfraError, ConfigError) as error:
        say(f"warning: contexts are only read in part: {error}", err=True)
        return [{}] * len(pieces)


def _phone(name: str, lab_file: Path) -> Phone:
    lab = load_lab(lab_file)
    lab.select([name])
    with open_lab(lab, "app check") as opened:
        attached = opened.device(name).attach()
        if attached.target != TARGET:
            problem = f"device {name} is no Android phone: its target is {attached.target}"
            raise ConfigError(problem, field="--device")
        public = ask_public_libraries(attached.transport)
        return Phone(name, preflight_device(attached), public)


def _lines(result: AppReport) -> Iterator[str]:
    packing = "files" if result.extracts_libraries else "inside the APK"
    yield (
        f"{result.package}: minSdk {result.min_sdk}, targetSdk {result.target_sdk}, "
        f"libraries are {packing} after the installation"
    )
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
        yield "nothing of QNN is inside, so there is nothing to check"
        return
    for finding in result.findings:
        yield f"{finding.severity} {finding.code}: {finding.explanation}"
        for place in finding.evidence[:_MAX_SHOWN]:
            yield f"    in {place}"
        yield f"    what helps: {finding.remedy}"
        if finding.source:
            yield f"    see {finding.source}"
    errors = sum(finding.severity == "error" for finding in result.findings)
    where = f" on {result.device}" if result.device else ""
    number = counted(len(result.findings), "finding")
    yield f"{number}; {errors or 'nothing'} would stop it{where}"
