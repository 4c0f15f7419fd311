"""`qnn-harness contexts`: the context binaries in files of users."""

from __future__ import annotations

import click

from harness.cli.contexts_extract import extract_command
from harness.cli.contexts_fit import calibrate_command, fit_command
from harness.cli.contexts_inspect import inspect


@click.group()
def contexts() -> None:
    """Context binaries in files that you have.

    FILE is a context binary, an ExecuTorch .pte, an ONNX model with EPContext nodes, a LiteRT
    .tflite, a DLC, a folder with such files, or a pattern such as 'models/*.pte'. What a file is,
    is seen in its content.
    """


for one in (inspect, extract_command, fit_command, calibrate_command):
    contexts.add_command(one)
