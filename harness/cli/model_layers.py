"""`qnn-harness model layers`: find and export the first op of a model that is wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from harness.cli.common_options import NamedPath, json_option, lab_option, reports_option
from harness.cli.lab_options import (
    SERIAL,
    device_option,
    lab_or_simulated,
    only_version,
    open_catalog,
    qnn_option,
)
from harness.cli.say import say, say_result
from harness.containers.open import open_artefact
from harness.core.errors import INTERRUPTED, ConfigError
from harness.core.files import disk_errors, scratch_folder, write_whole
from harness.core.socs import SOCS
from harness.lab.inventory import load_lab
from harness.lab.new_devices import with_hardware
from harness.layers.divergence import as_page, lines
from harness.layers.first_wrong_op import FirstWrong
from harness.layers.network import Cpu, HtpDevice, Qnn
from harness.results.run_folder import new_run_id
from harness.runtimes.catalog import resolve_versions


@click.command("layers")
@click.argument("model", type=NamedPath())
@click.option(
    "--against",
    default="cpu",
    metavar="cpu|VERSION",
    show_default=True,
    help="Reference: ONNX Runtime on the CPU, or HTP with another QNN version.",
)
@click.option(
    "--reference",
    type=NamedPath(),
    metavar="FILE",
    help="Model to compare with, whose nodes have the same names.",
)
@click.option(
    "--threshold",
    type=click.FloatRange(0.0),
    metavar="E",
    help="Relative error above which an op is wrong (default: by its kind).",
)
@click.option("--inputs", type=NamedPath(), metavar="DIR", help="Inputs (default: generated).")
@qnn_option("QNN version to test (default: newest).")
@device_option("Device (default: ANDROID_SERIAL, else the first with HTP).", envvar=SERIAL)
@lab_option
@reports_option
@json_option
def layers_command(
    model: Path,
    against: str,
    reference: Path | None,
    threshold: float | None,
    inputs: Path | None,
    qnn: str | None,
    device: str | None,
    lab_file: Path,
    reports: Path,
    as_json: bool,
) -> int:
    """Find the first op of an ONNX MODEL that is wrong on HTP.

    All intermediate tensors are compared, in the graph and op by op with the reference's inputs:
    that separates the error of an op from an inherited one. The wrong op is exported as a model
    with inputs and expected outputs.

    \b
    Exit codes: 0 no op is wrong, 1 one is, or the model is refused, 2 the input is wrong,
    3 the lab failed.
    """
    for file in filter(None, (model, reference)):
        if (kind := open_artefact(file).kind) != "onnx":
            problem = (
                f"is of kind {kind}, which has only its outputs and no intermediate tensors; name "
                "the .onnx that it was made from"
            )
            raise ConfigError(problem, file=file)
    tested = only_version(qnn, resolve_versions, "--qnn")
    other = None if against == "cpu" else only_version(against, resolve_versions, "--against")
    if other == tested:
        problem = f"QNN {tested} is the tested version; name another one, or set --qnn"
        raise ConfigError(problem, field="--against")
    if other is not None and reference is not None:
        raise ConfigError("cannot be combined with --against", field="--reference")
    place = _place(lab_file, device)
    catalog = open_catalog(place.lab)
    host = catalog.compiler_host(tested)
    try:
        with scratch_folder() as folder:
            side = Qnn(catalog.compiler_host(other), place, folder) if other else None
            htp = Qnn(host, place, folder)
            outputs, cpu = folder / "kept", Cpu(host, folder)
            search = FirstWrong(model, htp, cpu, folder, side, reference, inputs, threshold)
            report = search.run(outputs)
            target = reports / f"{new_run_id()}-layers"
            if report.first is not None and report.first.exported:
                first = report.first.model_copy(update={"exported": str(target)})
                report = report.model_copy(update={"first": first})
            with disk_errors(f"cannot write to {reports}"):
                outputs.mkdir(exist_ok=True)
                write_whole(outputs / "curve.html", as_page(report).encode())
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(outputs, target)
    except KeyboardInterrupt:
        say("stopped; its files are removed", err=True)
        return INTERRUPTED
    say_result(report, [*lines(report), f"page: {target / 'curve.html'}"], as_json)
    return report.exit_code


def _place(lab_file: Path, device: str | None) -> HtpDevice:
    """Return the named device, else the first one with a known HTP. Raises ConfigError."""
    names = [device] if device else []
    lab_file = lab_or_simulated(lab_file, names, notice=True)
    for config in with_hardware(load_lab(lab_file, names=names)).select(names or None):
        soc = SOCS.get(config.soc or "")
        if arch := config.htp_arch or (soc.htp_arch if soc else None):
            return HtpDevice(lab_file, device or config.name, arch)
    subject = f"device {device!r} has no" if device else "no device has a"
    problem = f"{subject} known `soc` or `htp_arch` to compile for"
    raise ConfigError(problem, file=lab_file, field="--device")
