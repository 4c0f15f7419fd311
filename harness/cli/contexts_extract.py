"""`qnn-harness contexts extract`: the context binaries of files, copied out of them."""

from __future__ import annotations

from pathlib import Path

import click

from harness.artefacts.extract import extract
from harness.artefacts.manifest import MANIFEST
from harness.artefacts.open import open_artefacts
from harness.cli.lab_options import NamedPath, files_argument, json_option
from harness.cli.say import say, say_json


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
    pieces = extract(open_artefacts(files), folder, hashed=hashed).pieces
    if as_json:
        say_json({"folder": str(folder), "pieces": [one.model_dump() for one in pieces]})
        return
    width = max(len(one.file or "-") for one in pieces)
    for one in pieces:
        came = f"{one.artefact} {one.origin}".strip()
        say(f"{one.file or '-':<{width}}  {one.size:>12} bytes  {one.kind:<7}  {came}")
    say(f"{folder / MANIFEST} tells of them")
