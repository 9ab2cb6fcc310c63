"""Runs, and groups of runs that share a compiled program."""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pausejax.parts import File


@dataclasses.dataclass(frozen=True)
class Run:
    """Run of one policy, at one point of its parameters, with one seed."""

    policy: str
    """Label of the policy in results: the `label` of its `[[policy]]` table, or a name made from it."""
    algorithm: str
    """Registered name of the policy. It is not the federated algorithm."""
    seed: int
    values: Mapping[str, Any]
    """Values of all parameters that this run reads."""
    identity: str = ""
    """Hash of the seed and of all settings and files that the run's results depend on.

    Two labels with equal settings have runs with equal identities. The hash covers neither the layout nor the
    versions of libraries, which change the last bits of floats. `plan.plan_of` sets it.
    """
    sources: str = ""
    """Hash of the user's files and parts that the run uses; "" if it uses none. `plan.plan_of` sets it."""


@dataclasses.dataclass(frozen=True)
class Group:
    """Group of runs that share one compiled program."""

    key: str
    """Name of the policy with a digest of policy, static values and terms in use; unique within a study."""
    algorithm: str
    static: Mapping[str, Any]
    """Values of the static parameters that the runs read."""
    runs: tuple[Run, ...]


def policies_of(runs: Iterable[Run]) -> str:
    """Returns the labels of the policies of some runs, separated by commas."""
    return ", ".join(dict.fromkeys(run.policy for run in runs))


def on_host(static: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Returns a group's static values with full paths of files, as parts on the host need them.

    Args:
      static: values by parameter name.
      folder: the folder to which the paths in `static` are relative.
    """
    return {
        name: File(folder / value) if isinstance(value, File) and value else value
        for name, value in static.items()
    }
