"""What `pausejax tune` finds on this machine, against what the package did before it could measure.

    python scripts/bench/placement.py [--case mlp linear] [--runs 8] [--seconds 60] [--table]

For each network the layout is measured as `pausejax tune` does; then whole rounds are timed in turn in the
layout found and in the one of before, by CPU seconds of all cores (wall seconds where it is no CPU). The data
are noise of the data sets' shapes. --table writes what was found into `pausejax/measured.json`.
"""

import argparse
import json
import math
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import jax
from gpu_model import cases

from pausejax import measured
from pausejax.data.host import Sources
from pausejax.engine.engine import Engine
from pausejax.engine.runtime import set_up_jax
from pausejax.engine.schedule import cut, units
from pausejax.engine.tuning import Asked, decide
from pausejax.kinds import parse
from pausejax.study.plan import make_plan
from pausejax.study.trials import best_of

assert cases.CASES  # registers data sets of noise

CASES = {
    "mlp on digits": ("mlp", "digits", 0, 40),
    "linear": ("linear", "like_mnist", 2000, 20),
    "mlp": ("mlp", "like_mnist", 2000, 20),
    "cnn_mnist": ("cnn_mnist", "like_mnist", 600, 2),
    "cnn_cifar": ("cnn_cifar", "like_cifar10", 600, 2),
}
"""Model, data set, training samples, rounds that are timed."""


def before(convolutional: bool, parameters: int) -> dict[str, int | str]:
    """What the package did on every CPU when it could not measure."""
    lanes = 1 if convolutional else min(max(2**20 // (16 * parameters), 1), 16)
    return {"lanes": lanes, "eval_lanes": 1, "eval_batch": 20 if convolutional else 500, "conv": "im2col"}


def plan_of(name: str, runs: int):
    model, dataset, samples, rounds = CASES[name]
    return make_plan(
        parse(
            {
                "seeds": runs,
                "rounds": rounds,
                "eval_every": min(10, rounds),
                "network": {"num_clients": 30, "clients_per_round": 5},
                "data": {"dataset": dataset, "train_samples": samples},
                "training": {"model": model, "persist_optimizer": True},
                "policy": [{"name": "pause"}],
            }
        )
    )


def player(plan, sources: Sources, layout):
    """Plays all rounds of a study in a layout."""
    engine, (unit,) = Engine(plan, sources), units(plan, (), most=len(plan.runs))
    engine.place(unit.group, layout)
    engine.prepare([unit])
    program = engine.compiled(unit.group)
    (chunk,) = cut(unit, program.width, program.padded)
    return lambda: engine.play(chunk)


def measure(name: str, options: argparse.Namespace) -> dict:
    plan, sources = plan_of(name, options.runs), Sources()
    (group,) = plan.groups
    engine = Engine(plan, sources)
    usual = engine.simulation(group)
    learning = usual.program.learning
    kind = {"convolutional": learning.model.convolutional, "parameters": learning.num_parameters}
    asked = Asked(kept=False, seconds=options.seconds, most=len(plan.runs))
    (answer,) = decide(engine, [group], asked, again=True).answers.values()
    layouts = {"before": before(*kind.values()), "shipped": dict(usual.layout), "tuned": dict(answer.layout)}
    distinct = {json.dumps(layout): layout for layout in layouts.values()}
    players = {key: player(plan, sources, layout) for key, layout in distinct.items()}
    seconds = dict.fromkeys(players, math.inf)
    for _ in range(options.repeats):  # in turn, so that neighbours disturb all alike
        for key, play in players.items():
            seconds[key] = min(seconds[key], best_of(play))
    rates = {who: len(plan.runs) * CASES[name][3] / seconds[json.dumps(own)] for who, own in layouts.items()}
    return {
        "case": name,
        **kind,
        "layouts": layouts,
        "rates": rates,
        "source": answer.source,
        "tried": len(answer.found.tried) if answer.found else 0,
    }


def row(found: dict) -> str:
    def told(layout: dict) -> str:
        return ", ".join(str(value) for value in layout.values())

    layouts, rates = found["layouts"], found["rates"]
    cells = [found["case"], told(layouts["before"]), told(layouts["tuned"])]
    cells += [
        f"{rates['tuned']:.4g}",
        f"{rates['tuned'] / rates['before']:.2f}",
        found["source"].split(" in ")[-1],
    ]
    return "| " + " | ".join([*cells, str(found["tried"])]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=90.0, help="for each network")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    os.environ.setdefault("PAUSEJAX_CACHE_DIR", tempfile.mkdtemp())
    set_up_jax()
    print(f"{jax.device_count()} × {jax.devices()[0].device_kind}, jax {jax.__version__}")
    print("| network | before | tuned | rounds × runs per s, tuned | ratio | took | tried |", flush=True)
    found = []
    for name in options.case:
        found.append(measure(name, options))
        print(row(found[-1]), flush=True)
    if options.table:
        table = json.loads(measured.FILE.read_text())
        rows = [
            {
                "convolutional": one["convolutional"],
                "parameters": one["parameters"],
                **one["layouts"]["tuned"],
            }
            for one in found
        ]
        backend = jax.default_backend()
        there = table.get(backend, {"runs": table["elsewhere"]["runs"], "programs": []})
        measured_now = {(one["convolutional"], one["parameters"]) for one in rows}
        kept = [r for r in there["programs"] if (r["convolutional"], r["parameters"]) not in measured_now]
        table[backend] = {"runs": there["runs"], "programs": kept + rows}
        measured.FILE.write_text(json.dumps(table, indent=2) + "\n")


if __name__ == "__main__":
    main()
