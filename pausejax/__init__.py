"""Client selection for federated learning under latency, privacy and generalization pressure."""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from pausejax.api import open, simulate
    from pausejax.study.spec import SpecError

# Loaded on first use: `import pausejax.bandit` needs neither the sweep engine nor the data libraries.
_PUBLIC = {
    "SpecError": "pausejax.study.spec",
    "open": "pausejax.api",
    "simulate": "pausejax.api",
    "model": "pausejax.parts",
    "task": "pausejax.parts",
    "dataset": "pausejax.parts",
    "partition": "pausejax.parts",
    "optimizer": "pausejax.parts",
    "server_optimizer": "pausejax.parts",
}

__all__ = ["SpecError", "__version__", "open", "simulate"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
