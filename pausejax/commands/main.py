"""The command line: parses arguments, calls a command, and maps errors to messages and exit codes."""

import argparse
import atexit
import contextlib
import errno
import gc
import io
import os
import shlex
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console

from pausejax.commands import best, data, export, parts, plan, report, run, search
from pausejax.version import __version__

OK, FAILED, BAD_SPEC, INTERRUPTED = 0, 1, 2, 130

_DESCRIPTION = """\
Simulates client selection for federated learning under latency, privacy and
generalization pressure. A study is one TOML file. All runs whose arrays have
equal shapes are simulated side by side in one compiled program.

  pausejax plan sweeps/quickstart.toml               prints the cost of a study, runs nothing
  pausejax run sweeps/quickstart.toml --out out/q    simulates, prints a table, draws charts
  pausejax search SPEC --out out/s --trials 64       finds the best settings of lists and ranges
  pausejax report out/q --smooth 10                  draws the charts again
  pausejax best out/q                                prints the best setting and its lead
  pausejax data mnist --partition shards             fetches a data set and draws it
  pausejax parts                                     lists policies, models, data sets …
  pausejax export out/q --format csv                 writes one row per run, for other tools
"""
_EXIT_CODES = (
    "exit codes: 0: done; 1: failed; 2: mistake in the spec or the arguments; 130: interrupted; "
    "143: ended by SIGTERM or SIGUSR1"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command, and returns its exit code.

    Args:
      arguments: the arguments of the command line; None: those of the process.
    """
    if arguments is None:
        # The process runs only this command. Loading libraries and tracing programs make millions of
        # permanent objects. The garbage collector's scans of these objects would take a third of the time of
        # `plan`.
        gc.set_threshold(50_000, 20, 100)
        warnings.showwarning = _warn
        # The encoding of stdout may lack letters such as ± and α. Then they are escaped, as on stderr.
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        ending = _Ending()
        atexit.register(
            ending
        )  # registered before all libraries load, so it is called after their exit functions
        try:
            ending.code = _carry_out(sys.argv[1:], own_process=True)
            return ending.code
        finally:
            gc.freeze()  # no scan at the end of the process, because the system then frees all objects
    return _carry_out(arguments, own_process=False)


class _Ending:
    """Ends the process at once if it has loaded Ray, because an orderly end can crash in Ray's threads."""

    code = FAILED

    def __call__(self) -> None:
        if "ray" in sys.modules:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):  # the stream has no reader, or is closed
                    stream.flush()
            os._exit(self.code)


def _carry_out(typed: Sequence[str], *, own_process: bool) -> int:
    options = _parser().parse_args(typed)
    options.typed = shlex.join(["pausejax", *typed])
    options.own_process = own_process
    errors = Console(stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False)
    from pausejax.execution.stopping import StopRequested
    from pausejax.study.document import SpecError, printable

    try:
        options.command(options)
        return OK
    except SpecError as mistakes:
        if options.traceback:
            errors.print(_chain(mistakes))
        for problem in mistakes.problems:
            errors.print(problem)
        return BAD_SPEC
    except MemoryError as error:
        errors.print(f"pausejax: out of memory: {printable(str(error))}")
        return FAILED
    except (OSError, ValueError) as error:
        if options.traceback:
            errors.print(_chain(error))
        errors.print(f"pausejax: {printable(_message(error, options))}")
        return FAILED
    except StopRequested as stop:
        errors.print(f"pausejax: {stop}: stopped. The same command continues")
        return stop.exit_code
    except KeyboardInterrupt:
        errors.print("pausejax: interrupted. The same command continues")
        return INTERRUPTED


def _message(error: Exception, options: argparse.Namespace) -> str:
    """Returns the line that the user reads about an error. If the disk is full, the line says what to do."""
    if not isinstance(error, OSError) or error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return str(error)
    place = getattr(options, "out", None) or getattr(options, "directory", None)
    where = f"{place}: " if place else ""
    return f"{where}{error.strerror}. Free some space, then run the same command again"


def _chain(error: Exception) -> str:
    """Returns the traceback of an error and of its causes."""
    from pausejax.study.document import printable

    return "\n".join(map(printable, "".join(traceback.format_exception(error)).splitlines()))


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Prints a warning as one line, without the line of code that caused it."""
    from pausejax.study.document import printable

    print(f"pausejax: {category.__name__}: {printable(str(message))}", file=file or sys.stderr)


def _parser() -> argparse.ArgumentParser:
    from pausejax.study.document import asks_for_traceback

    parser = argparse.ArgumentParser(
        prog="pausejax",
        description=_DESCRIPTION,
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"pausejax {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in (run, plan, search, report, best, export, data, parts):
        command.add_to(commands)
    for command_parser in commands.choices.values():
        command_parser.add_argument(
            "--traceback",
            action="store_true",
            default=asks_for_traceback(),
            help="print the traceback of an error, with its causes (also: PAUSEJAX_TRACEBACK=1)",
        )
    return parser
