"""An old name says what takes its place: to tests as a warning, to commands' users as a line."""

from __future__ import annotations

import warnings

import click
import pytest
from click.testing import CliRunner

from harness.ground.errors.renamed import RenamedWarning, renamed
from harness.tools.cli.say import show_notices

TEXT = "--old is called --new now; version 0.3 takes the old name no more"


def old_option() -> None:
    renamed("--old", "--new", until="0.3")


def test_it_names_the_place_that_uses_the_old_name() -> None:
    with pytest.warns(DeprecationWarning, match="^--old is called --new now; version 0.3") as seen:
        old_option()
    (one,) = seen
    assert (one.filename, one.category) == (__file__, RenamedWarning)


def test_a_command_prints_it_as_a_line() -> None:
    @click.command()
    @click.pass_context
    def command(context: click.Context) -> None:
        show_notices(context)
        old_option()
        warnings.warn("of somebody else", DeprecationWarning, stacklevel=1)
        click.echo("done")

    with warnings.catch_warnings():
        warnings.resetwarnings()
        warnings.simplefilter("ignore")  # as Python does outside of tests
        done = CliRunner().invoke(command, catch_exceptions=False)
    assert (done.stdout, done.stderr) == ("done\n", f"warning: {TEXT}\n")
