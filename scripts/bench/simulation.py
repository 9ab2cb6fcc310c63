"""Rounds × runs per second and compile time of whole studies on this machine.

    python scripts/bench/simulation.py [--runs 1 8 64] [--rounds 400] [--json FILE]

Every figure is of one process on an otherwise idle machine; CPU seconds stand beside wall seconds because
they do not suffer from neighbours. The result of every timed call is read back, so nothing is optimized away.
"""

import argparse
import json
import platform
import resource
import time
from pathlib import Path

import jax

from pausejax.data.host import Sources
from pausejax.engine import engine as execute
from pausejax.engine.schedule import cut, units
from pausejax.kinds import parse
from pausejax.study.plan import make_plan

STUDIES = {
    "PAUSE, bandit only, K 30, m 5": {"mode": "bandit", "policy": [{"name": "pause"}]},
    "PAUSE, MLP on digits, K 30, m 5, evaluated every 10": {"policy": [{"name": "pause"}]},
    "PAUSE, MLP on digits, K 30, m 5, evaluated every round": {
        "eval_every": 1,
        "policy": [{"name": "pause"}],
    },
    "FedAvg, MLP on digits, K 30": {"policy": [{"name": "fedavg"}]},
}


def measure(document: dict, runs: int, rounds: int) -> dict:
    plan = make_plan(parse({"seeds": runs, "rounds": rounds, **document}))
    sources = Sources()
    engine, (unit,) = execute.Engine(plan, sources), units(plan, (), most=runs)
    begun, cpu = time.perf_counter(), time.process_time()
    engine.prepare([unit])
    program = engine.compiled(unit.group)
    compile_wall, compile_cpu = time.perf_counter() - begun, time.process_time() - cpu
    (chunk,) = cut(unit, program.width, program.padded)
    engine.play(chunk)
    walls, cpus = [], []
    for _ in range(3):
        begun, cpu = time.perf_counter(), time.process_time()
        engine.play(chunk)
        walls.append(time.perf_counter() - begun)
        cpus.append(time.process_time() - cpu)
    work = rounds * runs
    return {
        "runs": runs,
        "compile_s": round(compile_wall, 2),
        "compile_cpu_s": round(compile_cpu, 2),
        "rounds_times_runs_per_s": round(work / min(walls), 1),
        "rounds_times_runs_per_cpu_s": round(work / min(cpus), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    machine = (
        f"{jax.device_count()} × {jax.devices()[0].device_kind}, {platform.machine()}, jax {jax.__version__}"
    )
    print(machine)
    found = {"machine": machine, "rounds": options.rounds, "studies": {}}
    for name, document in STUDIES.items():
        print(name)
        rows = found["studies"][name] = [measure(document, runs, options.rounds) for runs in options.runs]
        for row in rows:
            print("   ", *(f"{key} {value}" for key, value in row.items()), sep="  ")
    found["peak_memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000
    print(f"peak memory {found['peak_memory_mb']} MB")
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
