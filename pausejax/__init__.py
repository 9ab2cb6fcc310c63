"""Client selection for federated learning under latency, privacy and generalization pressure.

The public names of the library are `simulate`, `search`, `open`, `select`, `summary`, `charts`, `models` and
`save`, the decorators that register user parts, and the public modules. Everything is loaded on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

from pausejax import lazy
from pausejax.version import __version__

if TYPE_CHECKING:
    from pausejax.analysis import select, summary
    from pausejax.api import open, save, search, simulate
    from pausejax.kinds import charts, models
    from pausejax.parts import (
        File,
        Parameter,
        aggregator,
        algorithm,
        availability,
        dataset,
        ending,
        latency,
        mechanism,
        model,
        partition,
        policy,
        quantity,
        server_optimizer,
        task,
    )
    from pausejax.study.spec import SpecError

_HOME = {
    "pausejax.analysis": ("select", "summary"),
    "pausejax.api": ("open", "save", "search", "simulate"),
    "pausejax.kinds": ("charts", "models"),
    "pausejax.study.spec": ("SpecError",),
    "pausejax.parts": (
        "File",
        "Parameter",
        "aggregator",
        "algorithm",
        "availability",
        "dataset",
        "ending",
        "latency",
        "mechanism",
        "model",
        "partition",
        "policy",
        "quantity",
        "server_optimizer",
        "task",
    ),
}
_public = lazy.face(__name__, _HOME)
_MODULES = (
    "analysis",
    "bandit",
    "data",
    "ensemble",
    "federated",
    "kinds",
    "network",
    "page",
    "parts",
    "policies",
    "privacy",
    "regret",
    "plotting",
    "selection",
)

__all__ = [
    "File",
    "Parameter",
    "SpecError",
    "__version__",
    "aggregator",
    "algorithm",
    "availability",
    "charts",
    "dataset",
    "ending",
    "latency",
    "mechanism",
    "model",
    "models",
    "open",
    "partition",
    "policy",
    "quantity",
    "save",
    "search",
    "select",
    "server_optimizer",
    "simulate",
    "summary",
    "task",
]


def __getattr__(name: str) -> Any:
    return importlib.import_module(f"pausejax.{name}") if name in _MODULES else _public(name)


def __dir__() -> list[str]:
    return sorted((*__all__, *_MODULES))
