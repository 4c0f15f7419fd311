"""`qnn-harness contexts`: the context binaries in files of users; `extract` copies them out."""

from __future__ import annotations

from pathlib import Path

import click

from harness.artefacts.extract import extract
from harness.artefacts.manifest import MANIFEST
from harness.artefacts.open import open_artefacts
from harness.cli.contexts_fit import calibrate_command, fit_command
from harness.cli.contexts_inspect import inspect
from harness.cli.contexts_minimize import bundle_command, minimize_command
from harness.cli.lab_options import NamedPath, files_argument, json_option
from harness.cli.say import say, say_json


@click.group()
def contexts() -> None:
    """Context binaries in files that you have.

    FILE is a context binary, an ExecuTorch .pte, an ONNX model with EPContext nodes, a LiteRT
    .tflite, a DLC, a bundle, a folder with such files, or a pattern such as 'models/*.pte'. What a
    file is, is seen in its content.
    """


@click.command("extract")
@files_argument
@click.option(
    "--out",
    "folder",
    type=NamedPath(),
    required=True,
    metavar="DIR",
    help="A new folder for the context binaries and their manifest.json.",
)
@click.option("--hash", "hashed", is_flag=True, help="Write the sha256 of each into the manifest.")
@json_option
def extract_command(files: tuple[Path, ...], folder: Path, hashed: bool, as_json: bool) -> None:
    """Copy the context binaries out of FILEs, as a runtime would load them one after the other.

    A manifest.json tells of each where it comes from and its size; wherever FILE can stand, the
    folder can, too.
    """
    manifest = extract(open_artefacts(files), folder, hashed=hashed)
    if as_json:
        say_json({"folder": str(folder), "pieces": manifest.told()["pieces"]})
        return
    pieces = manifest.pieces
    width = max(len(one.file or "-") for one in pieces)
    for one in pieces:
        came = f"{one.artefact} {one.origin}".strip()
        say(f"{one.file or '-':<{width}}  {one.size:>12} bytes  {one.kind:<7}  {came}")
    say(f"{folder / MANIFEST} tells of them")


for one in (
    inspect,
    extract_command,
    fit_command,
    calibrate_command,
    minimize_command,
    bundle_command,
):
    contexts.add_command(one)
