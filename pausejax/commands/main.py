"""The command line. Thin: it parses, calls, prints, and maps errors to exit codes."""

import argparse
import functools
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from pausejax.commands import data as data_command

if TYPE_CHECKING:
    from pausejax.engine.local import Outcome
    from pausejax.study.plan import Plan

OK, FAILED, BAD_SPEC, INTERRUPTED = 0, 1, 2, 130

_DESCRIPTION = """\
Simulates client selection for federated learning under latency, privacy and
generalization pressure. A study is one TOML file; every run of it that shares
its shapes is one lane of one compiled program.

  pausejax plan sweeps/quickstart.toml               what it comes to; runs nothing
  pausejax run sweeps/quickstart.toml --out out/q    simulates, prints a table, draws
  pausejax report out/q --smooth 10                  draws again
  pausejax data mnist --partition shards             fetches a data set and draws it
  pausejax export out/q --format csv                 one row per run, for other tools
"""
_EXIT_CODES = "exit codes: 0 done; 1 failed; 2 a mistake in the spec or the arguments; 130 interrupted"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    options = _parser().parse_args(arguments)
    errors = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    from pausejax.study.spec import SpecError

    try:
        return options.command(options)
    except SpecError as mistakes:
        for problem in mistakes.problems:
            errors.print(problem)
        return BAD_SPEC
    except (OSError, ValueError) as error:
        errors.print(f"pausejax: {error}")
        return FAILED
    except RuntimeError as error:
        if "decompress" not in str(error):
            raise
        errors.print(f"pausejax: the result is damaged ({error}); the same `pausejax run` makes it whole")
        return FAILED
    except KeyboardInterrupt:
        errors.print("pausejax: interrupted; the same command goes on where it was")
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pausejax",
        description=_DESCRIPTION,
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    from pausejax import __version__

    parser.add_argument("--version", action="version", version=f"pausejax {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    settings = argparse.ArgumentParser(add_help=False)
    settings.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override one key, e.g. training.learning_rate=0.05 or seeds=3; may be repeated",
    )
    settings.add_argument(
        "--data-dir",
        metavar="DIR",
        default=os.environ.get("PAUSEJAX_DATA_DIR"),
        help="folder of prepared data sets (default: $PAUSEJAX_DATA_DIR)",
    )
    spec = argparse.ArgumentParser(add_help=False, parents=[settings])
    spec.add_argument("spec", metavar="SPEC", help="the study, a TOML file")
    quiet = argparse.ArgumentParser(add_help=False)
    quiet.add_argument("--quiet", action="store_true", help="print errors only")

    drawing = argparse.ArgumentParser(add_help=False)
    drawing.add_argument(
        "--smooth",
        type=_window,
        default=1,
        metavar="N",
        help="draw accuracy as the mean of the last N evaluations (default 1: as measured)",
    )

    run = commands.add_parser("run", parents=[spec, quiet, drawing], help="simulate a study and draw it")
    run.add_argument("--out", metavar="DIR", required=True, help="where the result and the pictures go")
    run.add_argument("--no-report", action="store_true", help="draw nothing")
    run.add_argument("--tracker", metavar="NAME", help="report finished runs to a tracker: mlflow")
    run.add_argument(
        "--shard",
        type=_shard,
        default=(1, 1),
        metavar="I/N",
        help="simulate the I-th of N shares; whoever ends last leaves the result",
    )
    run.add_argument(
        "--checkpoint-every",
        type=_seconds,
        default=300.0,
        metavar="SECONDS",
        help="between checkpoints of runs in flight (default 300)",
    )
    run.add_argument(
        "--lanes", type=_count, metavar="N", help="put at most N runs side by side (default: measured)"
    )
    run.add_argument(
        "--memory",
        type=_gigabytes,
        metavar="GB",
        help="memory that a program may fill on each device (default: measured)",
    )
    run.add_argument(
        "--executor",
        choices=("local", "ray"),
        default="local",
        help="where runs are simulated: this process's devices (default), or the workers of a Ray cluster",
    )
    run.add_argument(
        "--ray-address",
        metavar="ADDRESS",
        help='HOST:PORT, or "auto" (default: $RAY_ADDRESS, else a Ray of its own on this machine)',
    )
    run.add_argument(
        "--cpus-per-worker",
        type=_count,
        metavar="N",
        help="cores of a Ray worker (default: all of a node; beside a GPU: one)",
    )
    run.set_defaults(command=_run)

    plan = commands.add_parser("plan", parents=[spec], help="say what a study comes to; run nothing")
    plan.set_defaults(command=_plan)

    report = commands.add_parser("report", parents=[quiet, drawing], help="draw a result again")
    report.add_argument("directory", metavar="DIR", help="a folder that `pausejax run` wrote")
    report.set_defaults(command=_report)

    export = commands.add_parser("export", parents=[quiet], help="write a result as Parquet or CSV")
    export.add_argument("directory", metavar="DIR", help="a folder that `pausejax run` wrote")
    export.add_argument("--format", choices=("parquet", "csv"), default="parquet", help="default: parquet")
    export.add_argument(
        "--curves", action="store_true", help="one row per run and round (default: one row per run)"
    )
    export.add_argument("--out", metavar="FILE", help="default: DIR/runs.FORMAT or DIR/curves.FORMAT")
    export.set_defaults(command=_export)

    data_command.add_parser(commands, [settings, quiet]).set_defaults(command=_data)
    return parser


def _window(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no window: an integer >= 1")
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no count: an integer >= 1")
    return int(text)


def _shard(text: str) -> tuple[int, int]:
    number, slash, count = text.partition("/")
    if not (slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise argparse.ArgumentTypeError(f"{text!r} is no share: I/N with 1 <= I <= N")
    return int(number), int(count)


def _seconds(text: str) -> float:
    return _number(text, "no time: seconds >= 0", 0.0)


def _gigabytes(text: str) -> int:
    return int(1e9 * _number(text, "no amount of memory: gigabytes >= 0.001", 0.001))


def _number(text: str, problem: str, least: float) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number >= least):
        raise argparse.ArgumentTypeError(f"{text!r} is {problem}")
    return number


def _load_plan(options: argparse.Namespace) -> "Plan":
    from pausejax.study import spec
    from pausejax.study.plan import make_plan

    return make_plan(spec.load(options.spec, options.set))


def _run(options: argparse.Namespace) -> int:
    from pausejax.clients.build import Sources
    from pausejax.engine import tracking
    from pausejax.engine.local import Settings, simulate_into
    from pausejax.engine.progress import progress_bar
    from pausejax.engine.runtime import set_up_jax
    from pausejax.report import diverged_runs, summary_table
    from pausejax.results import store
    from pausejax.results.folder import Folder

    simulate = _executor(options) or simulate_into
    plan, folder = _load_plan(options), Folder(options.out)
    tracker = tracking.make(options.tracker) if options.tracker else None
    found = store.prepare(folder, plan)
    console = _console()
    set_up_jax()
    settings = Settings(options.lanes, options.memory, options.checkpoint_every, options.shard)
    begun = time.monotonic()
    with progress_bar(plan, quiet=options.quiet) as progress:
        sources = Sources(options.data_dir)
        outcome = simulate(folder, plan, found, sources, settings, progress=progress, tracker=tracker)
    took = time.monotonic() - begun
    if not options.quiet:
        for name in outcome.damaged:
            console.print(f"was damaged, and was simulated again: {name}", markup=False)
        if outcome.already:
            console.print(f"{outcome.already} of {len(plan.runs)} runs were there already")
    if outcome.missing:
        if not options.quiet:
            console.print(f"{outcome.missing} of {len(plan.runs)} runs are missing: other shards' work")
        return OK
    if not options.quiet:
        result = store.read(options.out)
        console.print(summary_table(result))
        for line in diverged_runs(result):
            console.print(line, markup=False)
        console.print(f"{len(plan.runs)} runs in {took:.1f} s: {folder.path(store.RESULT)}")
    return OK if options.no_report else _draw(options.out, options)


def _executor(options: argparse.Namespace) -> "Callable[..., Outcome] | None":
    """What simulates a study elsewhere than in this process; None: nothing does."""
    from pausejax.study.spec import SpecError

    if options.executor == "local":
        for name in ("ray_address", "cpus_per_worker"):
            if getattr(options, name) is not None:
                raise SpecError([f"--{name.replace('_', '-')}: only with --executor ray"])
        return None
    if options.shard != (1, 1):
        raise SpecError(["--shard: not with --executor ray, which shares the work out itself"])
    import jax

    from pausejax.cluster import driver as on_ray

    jax.config.update("jax_platforms", "cpu")  # the GPUs are the workers'
    cluster = on_ray.Cluster(options.ray_address, options.cpus_per_worker)
    return functools.partial(on_ray.simulate_into, cluster=cluster)


def _plan(options: argparse.Namespace) -> int:
    from pausejax.clients.build import Sources
    from pausejax.engine.estimate import plan_table
    from pausejax.engine.runtime import set_up_jax

    set_up_jax()
    _console().print(plan_table(_load_plan(options), Sources(options.data_dir)))
    return OK


def _report(options: argparse.Namespace) -> int:
    return _draw(options.directory, options)


def _data(options: argparse.Namespace) -> int:
    data_command.run(options, _console())
    return OK


def _export(options: argparse.Namespace) -> int:
    from pausejax.results import store
    from pausejax.results.export import export

    name = f"{'curves' if options.curves else 'runs'}.{options.format}"
    path = Path(options.out) if options.out else Path(options.directory) / name
    rows = export(store.read(options.directory), path, options.format, curves=options.curves)
    if not options.quiet:
        _console().print(f"{rows} rows: {path}", markup=False, soft_wrap=True)
    return OK


def _draw(directory: str, options: argparse.Namespace) -> int:
    from pausejax.report import draw, save
    from pausejax.results import store

    paths = save(draw(store.read(directory), smoothing=options.smooth), Path(directory))
    if not options.quiet:
        names = sorted({path.stem for path in paths})
        _console().print(f"pictures in {directory} (PNG and PDF): {', '.join(names)}", markup=False)
    return OK


def _console() -> Console:
    """Wide enough for the tables where the output is no terminal."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=120)


if __name__ == "__main__":
    sys.exit(main())
