"""The counts of `gpu_plan.py` for the package as it was before anything was done for GPUs.

    git worktree add --detach ../before ad00652
    PYTHONPATH=../before python scripts/bench/gpu_before.py --case 'pause-*' mlp [--out out/gpu_before]
    python scripts/bench/gpu_plan.py --table docs/gpu.md

The options are those of `gpu_plan.py`. What is found is kept in --out, and in short in
`docs/results/gpu_before.json`, from where the tables of before and after take it. That package knows
nothing of devices that are not there, so a few names of it and of JAX are replaced while it builds.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax

import pausejax.devices
from pausejax.federated import training

# It told the compiler nothing.
pausejax.devices.compiler_options = lambda platform: {}  # type: ignore[attr-defined]

import gpu_plan  # noqa: E402
from gpu_model import programs, tables  # noqa: E402

programs_trips_of = programs.trips_of
OLD = Path(pausejax.__file__).parents[1]
KEPT = Path(__file__).resolve().parents[2] / tables.KEPT
NONE = {
    ("mlp-clustered_similarity", 8): "called the host for its linkage",
    ("value_per_second-30", 256): "not there",
    ("value_per_second-300", 256): "not there",
    ("value_per_second-3000", 64): "not there",
}
"""Cases without counts, and why."""


def simulation_of(case: Any, runs: int, changes: dict[str, Any], on: tuple[jax.Device, ...]) -> Any:
    """As `programs.simulation_of`, of a package that takes the devices that JAX finds."""
    jax.local_devices = lambda: list(on)
    jax.default_backend = lambda: "gpu"
    plan = programs.make_plan(programs.parse(programs.cases.document(case, runs, changes)))
    (group,) = plan.groups
    return plan.study.kind.simulation(plan, group, programs.SOURCES)


def trips_of(simulation: Any) -> dict[str, float]:
    """As `programs.trips_of`, by the places that loops had."""
    program = getattr(simulation, "program", None)
    if program is None:
        return {}
    # Every round was a choice between playing it and copying the state.
    found = {r"body/closed_call/cond/branch_1_fun/cond$": 1 / program.eval_every, r"closed_call/cond$": 1.0}
    return programs_trips_of(simulation) | found


def name_loops() -> None:
    """Names the loops of a round's training as they are named today."""
    for name, scope in (("add_in_turn", "add_in_turn"), ("_run_lanes", "local_steps")):
        setattr(training, name, jax.named_scope(scope)(getattr(training, name)))


def program_static(simulation: Any) -> dict[str, Any]:
    """Its static values; products were left to JAX, which multiplies in TF32 on a GPU."""
    return {**getattr(simulation, "_static", {}), "precision": "tf32"}


def keep(out: Path) -> None:
    """The short file: what is in it already, and all that is in a folder."""
    commit = subprocess.run(
        ["git", "-C", OLD, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    found = json.loads(KEPT.read_text()) if KEPT.exists() else []
    found += [
        {"device": "h100", "case": case, "runs": runs, "reason": reason}
        for (case, runs), reason in NONE.items()
    ]
    rows = {(row["device"], row["case"], row["runs"]): row for row in found}
    for file in sorted(out.glob("*.json")):
        row = json.loads(file.read_text())
        names = ("device", "case", "runs", "jax", "launches", "syncs", "bytes", "seconds")
        short = {name: row[name] for name in names} | {"commit": commit}
        rows[row["device"], row["case"], row["runs"]] = short
    lines = (json.dumps(rows[key], ensure_ascii=False) for key in sorted(rows))
    KEPT.write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    name_loops()
    programs.simulation_of, programs.trips_of = simulation_of, trips_of
    programs.simulation_static = program_static
    if not any(option.startswith("--out") for option in sys.argv):
        sys.argv += ["--out", "out/gpu_before"]
    gpu_plan.main()
    keep(Path(sys.argv[sys.argv.index("--out") + 1]))
