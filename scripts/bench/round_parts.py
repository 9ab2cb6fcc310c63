"""Measures the cost of the parts of a round: CPU seconds of a round, compared with FedAvg in one process.

    python scripts/bench/round_parts.py [--runs 8] [--calls 8]

The study trains an MLP by SGD on digits, with 30 clients and 5 a round. All programs are compiled first.
Their calls of 25 rounds take turns, so that a busy machine slows all programs equally. Prints a row for each
part: CPU milliseconds of a round of all runs, the ratio to FedAvg, and the seconds of compilation.
"""

import argparse
import statistics
import time

import jax
import jax.numpy as jnp

from pausejax.clients import loop as simulation
from pausejax.clients.simulation import ClientSimulation
from pausejax.data.host import DataCache
from pausejax.devices import runs_mesh
from pausejax.kinds import parse
from pausejax.study.plan import make_plan

PARTS = {
    "FedAvg": {},
    "FedProx": {"training": {"federated_algorithm": "fedprox", "proximal_weight": 0.1}},
    "SCAFFOLD": {"training": {"federated_algorithm": "scaffold"}},
    "FedDyn": {"training": {"federated_algorithm": "feddyn"}},
    "FedPer": {"training": {"federated_algorithm": "fedper"}},
    "median": {"training": {"aggregator": "median"}},
    "trimmed mean": {"training": {"aggregator": "trimmed_mean"}},
    "Krum": {"training": {"aggregator": "krum"}},
    "no noise": {"privacy": {"mechanism": "none"}},
    "local Gaussian": {"privacy": {"mechanism": "gaussian"}},
    "central Gaussian": {"privacy": {"mechanism": "central_gaussian"}},
    "deadline": {"network": {"ending": "deadline", "round_deadline": 0.8}},
    "first of 7": {"network": {"ending": "first", "extra_clients": 2}},
    "buffered": {"network": {"ending": "buffered"}},
}


def document(part: dict[str, dict[str, object]], runs: int) -> dict[str, object]:
    spec: dict[str, dict[str, object]] = {
        "network": {"num_clients": 30, "clients_per_round": 5},
        "data": {"dataset": "digits"},
        "training": {"model": "mlp", "optimizer": "sgd", "learning_rate": 0.1},
        "privacy": {"noise_generator": "hash"} if "privacy" not in part else {},
    }
    merged = {name: {**values, **part.get(name, {})} for name, values in spec.items()}
    return {"rounds": 10_000, "eval_every": 25, "seeds": runs, "policy": [{"name": "random"}], **merged}


class Timed:
    """Compiled program with its state and its times."""

    def __init__(self, part: dict[str, dict[str, object]], runs: int) -> None:
        plan = make_plan(parse(document(part, runs)))
        made = ClientSimulation(plan.study, plan.groups[0], DataCache())
        chosen = plan.groups[0].runs
        self.world, self.hyper = made.arguments(chosen)
        self.state, self.rounds, self.at = made.start(chosen), made.rounds_per_call, 1
        self.mesh, self.config = runs_mesh(len(chosen)), made.config
        begin = time.perf_counter()
        self.play()
        self.compiled = time.perf_counter() - begin
        self.seconds: list[float] = []

    def play(self) -> None:
        last = jnp.int32(10_000)
        first = jnp.int32(self.at)
        self.state, record = simulation.advance(
            self.config, self.mesh, self.world, self.hyper, self.state, first, last
        )
        jax.block_until_ready(record)
        self.at += self.rounds

    def measure(self) -> None:
        begin = time.process_time()
        self.play()
        self.seconds.append((time.process_time() - begin) / self.rounds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--calls", type=int, default=8)
    asked = parser.parse_args()
    programs = {name: Timed(part, asked.runs) for name, part in PARTS.items()}
    for _ in range(asked.calls):
        for timed in programs.values():
            timed.measure()
    base = statistics.median(programs["FedAvg"].seconds)
    print(f"{'part':<18}{'ms a round':>12}{'ratio':>8}{'compiled, s':>14}")
    for name, timed in programs.items():
        middle = statistics.median(timed.seconds)
        print(f"{name:<18}{1e3 * middle:>12.2f}{middle / base:>8.2f}{timed.compiled:>14.1f}")


if __name__ == "__main__":
    main()
