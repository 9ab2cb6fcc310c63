"""One run, and a group of runs that share a compiled program."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Run:
    """One policy, at one point of its parameters, with one seed."""

    policy: str
    """The label in results."""
    algorithm: str
    seed: int
    values: Mapping[str, Any]
    """Every parameter that this run reads."""
    identity: str = ""
    """A hash of all that its numbers depend on; `plan.plan_of` sets it."""


@dataclasses.dataclass(frozen=True)
class Group:
    """Runs that one compiled program serves."""

    key: str
    """A digest of the algorithm, the static values and the terms that are on; unique within a study."""
    algorithm: str
    static: Mapping[str, Any]
    """Values of the static parameters that the runs read."""
    runs: tuple[Run, ...]


def policies_of(runs: Iterable[Run]) -> str:
    """Names the policies of some runs, by their labels."""
    return ", ".join(dict.fromkeys(run.policy for run in runs))
