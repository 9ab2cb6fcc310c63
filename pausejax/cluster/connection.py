"""The connection of a driver to a Ray cluster, or to a Ray of its own."""

import atexit
import contextlib
import os
import socket
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from pausejax.execution.stopping import handlers_kept

_CONNECT_SECONDS = 10.0


def installed() -> ModuleType:
    """Returns the module `ray`.

    Raises:
      ValueError: it is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise ValueError("--executor ray: needs Ray: pip install 'pausejax[ray]'") from error
    return ray


@contextlib.contextmanager
def connected(address: str | None, *, to_the_end: bool = False) -> Iterator[None]:
    """A connection to a Ray cluster, or to a Ray of one's own on this machine; one that is there is kept.

    A driver that holds objects is asked about them by every node, and answers in a thread that Ray's
    `shutdown` does not wait for. Where cores are scarce, the thread now and then meets what is gone already:
    a segmentation fault, the work done.

    Args:
      to_the_end: the connection is left as it is, for a process that ends next and in the same way
        (`commands.main`). A cluster sees that its driver is gone; a Ray of one's own ends with it, but for
        two idle agents that notice it a minute later.

    Raises:
      ValueError: the address is none.
      ConnectionError: there is no cluster at the address.
    """
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    more: dict[str, Any] = {}
    if address == "local":
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # Otherwise its services listen on every interface, and they run what they are sent. Ray keeps to the
        # loopback where it forms no clusters; whether it does it looks up when it is imported.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        more["include_dashboard"] = False
    ray = installed()
    if ray.is_initialized():
        yield
        return
    _knock(address)
    try:
        # Ray has SIGTERM end the driver at once, with exit code 1, whatever is in flight.
        with handlers_kept():
            ray.init(address=address, log_to_driver=False, logging_level="error", **more)
    except (OSError, RuntimeError, ValueError, SystemExit, ray.exceptions.RayError) as error:
        raise ConnectionError(f"Ray at {address}: {_first_line(error)}") from error
    if to_the_end:
        atexit.unregister(ray.shutdown)
        yield
        return
    try:
        yield
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Ray itself tries for minutes to reach what is not there, and then ends the process."""
    if address in ("auto", "local"):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f'--ray-address {address}: must be HOST:PORT, "auto" or "local"')
    if host in ("localhost", "127.0.0.1", "::1"):
        host = installed().util.get_node_ip_address()  # what Ray makes of these names
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except OSError as error:
        raise ConnectionError(
            f"--ray-address {address}: no Ray cluster can be reached there: {error}"
        ) from error


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
