"""Adds the arguments that choose the executor and its devices, and makes the executor from them."""

import argparse
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pausejax.commands import options as common

if TYPE_CHECKING:
    from pausejax.execution.play import Executor
    from pausejax.execution.stopping import StopSignal


def devices() -> argparse.ArgumentParser:
    """Returns a parent parser with --lanes, --memory and --data-placement."""
    parser = argparse.ArgumentParser(add_help=False, parents=[memory()])
    parser.add_argument(
        "--lanes",
        dest="max_width",
        type=common.count,
        metavar="N",
        help="simulate at most N runs side by side (default: from measurements on devices of this kind)",
    )
    return parser


def memory() -> argparse.ArgumentParser:
    """Returns a parent parser with --memory and --data-placement."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "--memory",
        type=common.gigabytes,
        metavar="GB",
        help="memory that a program may use on each device (default: most of the available memory)",
    )
    parser.add_argument(
        "--data-placement",
        choices=("replicated", "sharded"),
        help="replicated: each device holds all training data; sharded: an equal share of the inputs "
        "(default: replicated, or sharded if the data do not fit otherwise)",
    )
    return parser


def arguments() -> argparse.ArgumentParser:
    """Returns a parent parser with --executor, --ray-address and --cpus-per-worker."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "--executor",
        choices=("local", "ray"),
        default="local",
        help="where runs are simulated: on this process's devices (local, the default) or on a Ray cluster",
    )
    parser.add_argument(
        "--ray-address",
        metavar="ADDRESS",
        help='address of the Ray cluster: HOST:PORT, "auto" or "local", a new Ray on this machine '
        "(default: $RAY_ADDRESS, or local)",
    )
    parser.add_argument(
        "--cpus-per-worker",
        type=common.count,
        metavar="N",
        help="number of CPU cores of a Ray worker (default: all of its node; one if the worker has a GPU)",
    )
    return parser


def telling() -> argparse.ArgumentParser:
    """Returns a parent parser with --quiet, --log, --tracker and --no-report."""
    parser = argparse.ArgumentParser(add_help=False, parents=[common.quiet()])
    parser.add_argument(
        "--log",
        choices=("text", "json", "bar"),
        help="form of the progress on stderr (default: bar on a terminal, else text, one line every 30 s)",
    )
    parser.add_argument(
        "--tracker", metavar="NAME", help="send finished runs to a tracker: mlflow, tensorboard or wandb"
    )
    parser.add_argument("--no-report", action="store_true", help="write no page and no charts")
    return parser


def check(options: argparse.Namespace) -> None:
    """Checks that all options that were given apply to the executor of --executor.

    With Ray, JAX uses only the CPU in this process, and leaves the GPUs to the workers.

    Raises:
      SpecError: an option applies to the other executor only.
    """
    from pausejax.study.document import SpecError

    if options.executor == "ray":
        import jax

        jax.config.update("jax_platforms", "cpu")
    for name in ("ray_address", "cpus_per_worker") if options.executor == "local" else ():
        if getattr(options, name) is not None:
            raise SpecError([f"--{name.replace('_', '-')}: allowed only with --executor ray"])


@contextlib.contextmanager
def executor(options: argparse.Namespace, stopping: "StopSignal") -> "Iterator[Executor]":
    """Makes the executor that simulates batches of runs; at the end, closes its processes and threads."""
    from pausejax.data.host import DataCache
    from pausejax.execution.local import LocalExecutor

    cache = DataCache(options.data_dir)
    made: Any
    limits: dict[str, Any] = {
        "max_width": options.max_width,
        "device_memory": options.memory,
        "data_placement": options.data_placement,
    }
    if options.executor == "local":
        made = LocalExecutor(cache, **limits)
    else:
        from pausejax.cluster.driver import RayExecutor

        made = RayExecutor(
            cache,
            address=options.ray_address,
            cpus_per_worker=options.cpus_per_worker,
            to_the_end=options.own_process,
            stopping=stopping,
            **limits,
        )
    with contextlib.closing(made):
        yield made
