"""Where runs are simulated, and how they lie there: the arguments that say so, and what they come to."""

import argparse
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pausejax.commands import options as common

if TYPE_CHECKING:
    from pausejax.cluster.driver import Cluster
    from pausejax.execution.play import Executor
    from pausejax.execution.stopping import StopSignal


def devices() -> argparse.ArgumentParser:
    """--lanes, --memory and --data-placement."""
    parser = argparse.ArgumentParser(add_help=False, parents=[memory()])
    parser.add_argument(
        "--lanes",
        type=common.count,
        metavar="N",
        help="put at most N runs side by side (default: as many as suit such devices)",
    )
    return parser


def memory() -> argparse.ArgumentParser:
    """--memory and --data-placement."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "--memory",
        type=common.gigabytes,
        metavar="GB",
        help="memory that a program may fill on each device (default: measured)",
    )
    parser.add_argument(
        "--data-placement",
        choices=("replicated", "sharded"),
        help="whether each device holds all training data, or an equal share of their inputs "
        "(default: replicated, or sharded where that alone fits)",
    )
    return parser


def arguments() -> argparse.ArgumentParser:
    """--executor, --ray-address, --cpus-per-worker."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "--executor",
        choices=("local", "ray"),
        default="local",
        help="where runs are simulated: this process's devices (default), or the workers of a Ray cluster",
    )
    parser.add_argument(
        "--ray-address",
        metavar="ADDRESS",
        help='HOST:PORT, or "auto" (default: $RAY_ADDRESS, else a Ray of its own on this machine)',
    )
    parser.add_argument(
        "--cpus-per-worker",
        type=common.count,
        metavar="N",
        help="cores of a Ray worker (default: all of a node; beside a GPU: one)",
    )
    return parser


def cluster(options: argparse.Namespace) -> "Cluster | None":
    """The cluster that is asked for; None: this process's devices.

    Raises:
      SpecError: an option that belongs to the other executor.
    """
    from pausejax.study.document import SpecError

    if options.executor == "local":
        for name in ("ray_address", "cpus_per_worker"):
            if getattr(options, name) is not None:
                raise SpecError([f"--{name.replace('_', '-')}: only with --executor ray"])
        return None
    import jax

    from pausejax.cluster.driver import Cluster

    jax.config.update("jax_platforms", "cpu")  # the GPUs are the workers'
    return Cluster(options.ray_address, options.cpus_per_worker, to_the_end=options.own_process)


@contextlib.contextmanager
def executor(
    options: argparse.Namespace, cluster: "Cluster | None", stopping: "StopSignal"
) -> "Iterator[Executor]":
    """Makes what plays batches, and ends its processes and threads."""
    from pausejax.data.host import Sources
    from pausejax.execution.local import LocalExecutor

    sources, memory, placement = Sources(options.data_dir), options.memory, options.data_placement
    made: Any
    if cluster is None:
        made = LocalExecutor(sources, lanes=options.lanes, device_memory=memory, data_placement=placement)
    else:
        from pausejax.cluster.driver import RayExecutor

        made = RayExecutor(
            cluster,
            sources,
            lanes=options.lanes,
            device_memory=memory,
            data_placement=placement,
            stopping=stopping,
        )
    with contextlib.closing(made):
        yield made
