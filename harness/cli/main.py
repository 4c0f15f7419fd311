"""The qnn-harness command: its groups, and how errors become exit codes."""

from __future__ import annotations

import sys

import click

from harness import __version__
from harness.cli.bisect import bisect
from harness.cli.compare import compare_command
from harness.cli.devices import devices
from harness.cli.doctor import doctor
from harness.cli.report import report
from harness.cli.runtimes import runtimes
from harness.cli.simulator import simulator
from harness.errors import HarnessError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="qnn-harness")
def commands() -> None:
    """Validate QNN runtimes and context binaries on devices. Tests run with `pytest -m device`.

    Exit codes: 0 fine, 1 the answer is negative, 2 the input is wrong, 3 the lab failed.
    """


commands.add_command(bisect)
commands.add_command(compare_command)
commands.add_command(devices)
commands.add_command(doctor)
commands.add_command(report)
commands.add_command(runtimes)
commands.add_command(simulator)


def main() -> None:
    """Entry point: every error of the harness is one line on stderr and its exit code."""
    try:
        code = commands.main(standalone_mode=False)
    except click.exceptions.Abort:
        code = 130
    except click.ClickException as error:
        error.show()
        code = 2
    except HarnessError as error:
        click.echo(f"error: {error}", err=True)
        code = error.exit_code
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        # The reader went away (`| head`); what it wanted it has.
        sys.stderr.close()
        code = 0
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
