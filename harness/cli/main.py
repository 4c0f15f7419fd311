"""The qnn-harness command: its groups, and how errors become exit codes."""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import shlex
import sys
import traceback
from difflib import SequenceMatcher
from functools import partial
from importlib import resources
from itertools import takewhile
from typing import Final

import click
from click.shell_completion import CompletionItem

from harness import __version__
from harness.cli.common_options import CommandGroup
from harness.cli.say import say, show_notices
from harness.core.errors import INTERRUPTED, ConfigError, HarnessError
from harness.core.outgoing_text import OutgoingStream

COMMANDS: Final = {
    "acceptance": "Test every layer of a device, and pack the results.",
    "app": "Check and run Android apps that bring QNN along.",
    "bisect": "Find what changed a case: QNN runtime, ONNX Runtime, compiler or power profile.",
    "compare": "Compare run NEW (default: reports/latest) with run BASE; new failures exit with 1.",
    "devices": "List, reserve, recover and clean devices.",
    "doctor": "Check this computer, the lab and DEVICEs (default: all enabled), and say "
    "what to do.",
    "explain": "Explain the failure in a log of any program that uses QNN or FastRPC.",
    "history": "Show failures over all runs: since when, where, how often, and what to bisect.",
    "init": "Write a devices.yaml with the devices that the adb server sees, and their properties.",
    "model": "Inspect, compare, extract, compile, fit and bundle model files.",
    "nightly": "Fetch new versions, run `pytest -m device`, compare, bisect new failures, and "
    "publish.",
    "notify": "Send the summary of a night or a run to the channels of `notify` in devices.yaml.",
    "report": "Write the reports of runs, merge runs, or write the dashboard of the lab.",
    "run": "Run model files on devices: load their contexts, execute them and record the result.",
    "runtimes": "List, fetch, show and verify QNN runtimes.",
    "simulator": "Start simulated devices, or build the emulator of their DSPs.",
}
"""Each command, a function in the module of its name, and the first sentence of its help."""

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
_INPUT: Final = (errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES, errno.EPERM)
_MOST_CHARS: Final = 300
_NEAR: Final = 0.8


class LazyGroup(CommandGroup):
    """A group that imports the module of a command only when the command is used."""

    texts = COMMANDS

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command of a name."""
        if cmd_name not in COMMANDS:
            from harness.core.yaml_document import did_you_mean

            meant = did_you_mean(cmd_name, COMMANDS)
            if not meant and os.path.exists(cmd_name):
                meant = f"; to run the file: qnn-harness run {shlex.quote(cmd_name)}"
            if meant:
                raise click.UsageError(f"No such command {cmd_name!r}{meant}", ctx)
            return None
        module = importlib.import_module(f"harness.cli.{cmd_name}")
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the completions of a word, without loading a command."""
        names = [CompletionItem(name, help=text) for name, text in COMMANDS.items()]
        fitting = [item for item in names if item.value.startswith(incomplete)]
        return [*fitting, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; exit with 0 if the reader of its output is gone (`| head`).

        Click would end with 1, which means a negative answer here.
        """
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _forget_output()
            return 0


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"\b\nAll pages to read:\n{resources.files('harness') / 'docs' / 'index.md'}",
)
@click.version_option(
    __version__,
    prog_name="qnn-harness",
    help="Print the versions of qnn-harness and of the schemas that it writes.",
    message="%(prog)s, version %(version)s\nschemas: results 2, all others 1",
)
@click.option("-v", "--verbose", is_flag=True, help="Print the traceback of an internal error.")
@click.pass_context
def commands(context: click.Context, verbose: bool) -> None:
    """Test models and QNN runtimes on Qualcomm devices, real or simulated.

    \b
    Examples:
      qnn-harness run model.bin -s sim-v73
      pytest -m device

    The options --lab, --reports and --json may also follow a command that takes them.

    Exit codes: 0 fine, 1 negative answer, 2 wrong input, 3 the lab failed, 130 interrupted.
    """
    show_notices(context)


def main() -> None:
    """Run the command line; an error of the harness is one line on stderr and its exit code."""
    from harness.core.end_signals import Ending

    for name in ("stdout", "stderr"):
        if (stream := getattr(sys, name)) is not None:
            setattr(sys, name, OutgoingStream(stream))
    Ending().watch()
    try:
        code = commands.main(standalone_mode=False)
    except click.exceptions.Abort:
        code = INTERRUPTED
    except click.ClickException as error:
        if isinstance(error, click.NoSuchOption) and error.possibilities:
            error.possibilities[:] = filter(
                partial(_is_near, error.option_name), error.possibilities
            )
        stderr = io.StringIO()
        error.show(file=stderr)
        _complain(stderr.getvalue(), nl=False)
        code = 2
    except HarnessError as error:
        _complain(f"error: {error}")
        code = error.exit_code
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as error:
        code = _report_error(error)
    sys.exit(code if isinstance(code, int) else 0)


def _is_near(option: str, other: str) -> bool:
    """Return whether one name begins with the other, or differs from it in a few letters."""
    name, near = sorted((option.strip("-"), other.strip("-")), key=len)
    return near.startswith(name) or SequenceMatcher(None, name, near).ratio() >= _NEAR


def _report_error(error: Exception) -> int:
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, OSError) and error.filename is not None and number in _INPUT:
        _complain(f"error: {error.filename}: {error.strerror}")
        return int(ConfigError.exit_code)
    if isinstance(error, FileNotFoundError) and error.filename is None:  # of os.getcwd()
        _complain("error: the current folder no longer exists; change to another one")
        return int(ConfigError.exit_code)
    if isinstance(error, OSError) and number in _NO_ROOM:
        _complain(f"error: the output could not be written: {error.strerror}")
        _forget_output()
    elif isinstance(error, MemoryError):
        _complain("error: this computer does not have enough memory for this command")
    else:
        message = " ".join(f"{type(error).__name__}: {error}".split())[:_MOST_CHARS].rstrip(":")
        before = takewhile(lambda word: word not in COMMANDS, sys.argv)
        verbose = {"-v", "--verbose"} & set(before)
        advice = "it with this traceback" if verbose else "it with what `qnn-harness -v ...` prints"
        if verbose:
            _complain("".join(traceback.format_exception(error)))
        _complain(f"error: internal error: {message}; please report {advice}")
    return int(HarnessError.exit_code)


def _complain(text: str, *, nl: bool = True) -> None:
    with contextlib.suppress(OSError):
        say(text, err=True, nl=nl)


def _forget_output() -> None:
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
