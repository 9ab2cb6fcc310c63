"""Parts of a study: registered functions whose keyword arguments are parameters.

`@policy`, `@model`, `@task` … register a function under its own name. Specs refer to the part by this name.
The function's keyword arguments become parameters of a spec. These are validated and documented, and can be
swept, zipped and sampled.
"""

from pausejax.parts.bound import Bound, bind
from pausejax.parts.parameter import File, Parameter, default_of, table
from pausejax.parts.part import CATEGORIES, Category, Part, PartError
from pausejax.parts.registry import (
    Parts,
    aggregator,
    algorithm,
    availability,
    collecting,
    dataset,
    ending,
    ensemble_policy,
    find,
    latency,
    mechanism,
    model,
    optimizer,
    partition,
    policy,
    quantity,
    registered_parts,
    regression_dataset,
    server_optimizer,
    task,
)
from pausejax.parts.signature import read

__all__ = [
    "CATEGORIES",
    "Bound",
    "Category",
    "File",
    "Parameter",
    "Part",
    "PartError",
    "Parts",
    "aggregator",
    "algorithm",
    "availability",
    "bind",
    "collecting",
    "dataset",
    "default_of",
    "ending",
    "ensemble_policy",
    "find",
    "latency",
    "mechanism",
    "model",
    "optimizer",
    "partition",
    "policy",
    "quantity",
    "read",
    "registered_parts",
    "regression_dataset",
    "server_optimizer",
    "table",
    "task",
]
