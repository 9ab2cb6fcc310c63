"""Connects a driver to a Ray cluster, or to a local Ray that it starts."""

import atexit
import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from pausejax.execution.stopping import StopRequested, handlers_kept

_CONNECT_SECONDS = 10.0


def installed() -> ModuleType:
    """Returns the module `ray`.

    Raises:
      ValueError: `ray` is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise ValueError(
            "--executor ray: Ray is not installed. Install it: pip install 'pausejax[ray]'"
        ) from error
    return ray


@contextlib.contextmanager
def connected(address: str | None, *, to_the_end: bool = False) -> Iterator[None]:
    """Connects to a Ray cluster, or starts a local Ray. An existing connection is used and kept.

    The driver holds objects for the nodes, and answers their requests in a thread. Ray's `shutdown` does not
    wait for this thread. If cores are scarce, the thread sometimes reads freed memory. Then the process ends
    with a segmentation fault after it has done its work.

    Args:
      address: HOST:PORT, "auto" or "local"; None: $RAY_ADDRESS, or "local" without it.
      to_the_end: whether the connection stays until the process ends. The caller must then end the process at
        once, without cleanup. A cluster notices that its driver has ended. A local Ray ends with the process.
        Two idle agents of Ray end a minute later.

    Raises:
      ValueError: the address has another form, or Ray is not installed.
      ConnectionError: there is no cluster at the address.
      StopRequested: the process received SIGTERM while Ray was starting.
    """
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    more: dict[str, Any] = {}
    if address == "local":
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # Without this variable, Ray's services listen on every network interface and execute code from any
        # sender. Ray listens only on the loopback interface if it may not form clusters. It reads the
        # variable when it is imported.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        more["include_dashboard"] = False
    ray = installed()
    if ray.is_initialized():
        yield
        return
    _knock(address)
    try:
        # Ray sets a SIGTERM handler that ends the driver at once with exit code 1, without a checkpoint.
        with handlers_kept():
            ray.init(address=address, log_to_driver=False, logging_level="error", **more)
    except (OSError, RuntimeError, ValueError, SystemExit, ray.exceptions.RayError) as error:
        if isinstance(error, SystemExit) and error.code == signal.SIGTERM:  # raised by Ray's handler
            signal.alarm(0)  # Ray's C++ handler may have set an alarm, which would abort the process
            raise StopRequested(signal.SIGTERM) from error
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
    """Checks that a Ray cluster's address can be reached.

    Without this check, Ray would try for minutes and then end the process.

    Raises:
      ValueError: the address has another form than HOST:PORT, "auto" or "local".
      ConnectionError: nothing answers at the address.
    """
    if address in ("auto", "local"):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f'--ray-address {address}: must be HOST:PORT, "auto" or "local"')
    if host in ("localhost", "127.0.0.1", "::1"):
        host = installed().util.get_node_ip_address()  # Ray translates these names in the same way
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except OSError as error:
        raise ConnectionError(
            f"--ray-address {address}: no Ray cluster answers at this address: {error}"
        ) from error


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
