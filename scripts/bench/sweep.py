"""Measures the cost of a sweep: speed, memory and compilations, against runs, K, m and rounds.

  python scripts/bench/sweep.py studies                    speed and compile time of four studies
  python scripts/bench/sweep.py widths --out docs/images    speed and memory against runs side by side
  python scripts/bench/sweep.py scaling                    cost of a round against K, m and rounds
  python scripts/bench/sweep.py memory                     peak memory of a study of 1,000 and of 10,000 runs
  python scripts/bench/sweep.py compilations               compilations of a first and of a second start

Prints Markdown tables. Speeds are rounds × runs per second, the best of three. Seconds are CPU seconds of all
cores if the backend is a CPU, and wall seconds otherwise. Memory is XLA's figure for the compiled program.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np

from pausejax.data.host import DataCache
from pausejax.execution import memory
from pausejax.execution import rounds as playing
from pausejax.execution.batches import Batch, split
from pausejax.execution.local import LocalExecutor
from pausejax.kinds import parse
from pausejax.plotting.chart import Axis, Chart, Panel, Series
from pausejax.study.plan import make_plan

STUDIES = {
    "bandit only, PAUSE": {"mode": "bandit", "policy": [{"name": "pause"}]},
    "MLP on digits, PAUSE": {"policy": [{"name": "pause"}]},
}
MORE_STUDIES = {
    "MLP on digits, PAUSE, evaluated every round": {"eval_every": 1, "policy": [{"name": "pause"}]},
    "MLP on digits, FedAvg": {"policy": [{"name": "fedavg"}]},
}
SPEC = """
mode = "bandit"
rounds = 100
seeds = {seeds}
[reward]
gamma = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
[[policy]]
name = "pause"
"""
COUNTING = """
import json, sys
import jax
events = {}
def count(name, *_, **__):
    events[name] = events.get(name, 0) + 1
jax.monitoring.register_event_listener(count)
jax.monitoring.register_event_duration_secs_listener(count)
from pausejax.commands import main as cli
assert cli.main(sys.argv[1:]) == 0
print(json.dumps(events))
"""


def clock() -> float:
    return time.process_time() if jax.default_backend() == "cpu" else time.perf_counter()


def speed(document: dict, num_runs: int, rounds: int) -> tuple[float, float, float]:
    """Returns rounds × runs per second, megabytes of the compiled program on all devices, and compile
    seconds."""
    plan = make_plan(parse({"rounds": rounds, "seeds": num_runs, **document}))
    (group,) = plan.groups
    batch, executor = Batch(group, group.runs, num_runs), LocalExecutor(DataCache())
    program = executor.program(plan.study, group)
    begun = clock()
    # The method `prepare` of the executor limits the number of parallel runs. More are measured here.
    program.set_width(num_runs)
    with ThreadPoolExecutor(1) as threads:
        program.compile(threads)
        executable = program.executable()
    seconds = clock() - begun
    (whole,) = split(batch, executable.width)
    took = []
    for _ in range(4):
        begun = clock()
        playing.play_rounds(program, whole.runs, lambda _: None)
        took.append(clock() - begun)
    executor.close()
    devices = min(len(jax.local_devices()), program.simulation.padded(executable.width))
    megabytes = memory.program_memory(executable.compiled) * devices / 1e6
    return rounds * num_runs / min(took[1:]), megabytes, seconds


def studies(rounds: int = 400) -> None:
    sizes = (1, 8, 64)
    print(f"{jax.device_count()} × {jax.devices()[0].device_kind}, jax {jax.__version__}; K = 30, m = 5")
    print("| study | runs | rounds × runs / s | compiling, s |\n|---|---|---|---|")
    for name, document in {**STUDIES, **MORE_STUDIES}.items():
        for runs in sizes:
            rate, _, compiled = speed(document, runs, rounds)
            print(f"| {name} | {runs} | {rate:,.1f} | {compiled:.1f} |", flush=True)


def widths(out: Path | None, most: int) -> None:
    sizes = [4**k for k in range(8) if 4**k <= most]
    print("| study | " + " | ".join(f"{n} runs" for n in sizes) + " |")
    print("|---" * (len(sizes) + 1) + "|")
    curves = {}
    for name, document in STUDIES.items():
        # The work is about the same for every number of runs.
        rounds = {n: max(25, min(2000, 25 * (1000 // n))) for n in sizes}
        curves[name] = [speed(document, n, rounds[n] if "bandit" in name else 25) for n in sizes]
        print(f"| {name}: rounds × runs / s | " + " | ".join(f"{s:,.0f}" for s, *_ in curves[name]) + " |")
        print("| … MB | " + " | ".join(f"{m:,.1f}" for _, m, _ in curves[name]) + " |", flush=True)
    if out:
        draw(out / "throughput_vs_lanes.png", sizes, curves)


def draw(path: Path, sizes: list[int], curves: dict[str, list[tuple[float, float, float]]]) -> None:
    unit = "CPU s" if jax.default_backend() == "cpu" else "s"
    x, panels = np.array(sizes, float), []
    for which, label in enumerate((f"rounds × runs per {unit}", "program's memory (MB)")):
        series = [
            Series(name, x, np.array([point[which] for point in points]), style=style)
            for style, (name, points) in enumerate(curves.items())
        ]
        panels.append(Panel(Axis("runs side by side", "log"), Axis(label, "log"), tuple(series)))
    caption = "Speed and memory of a batch against its runs."
    Chart("throughput_vs_lanes", caption, tuple(panels), columns=2).save(path)
    print(f"drawn: {path}")


def scaling() -> None:
    def microseconds(num_clients: int = 30, clients_per_round: int = 5, rounds: int = 200) -> float:
        network = {"num_clients": num_clients, "clients_per_round": clients_per_round}
        return 1e6 / speed({**STUDIES["bandit only, PAUSE"], "network": network}, 16, rounds)[0]

    print("PAUSE, bandit only, 16 runs side by side; µs per round and run")
    for label, fixed, name, values in (
        ("K, at m = 5, 200 rounds", {}, "num_clients", (30, 100, 300, 1000, 3000, 10_000)),
        ("m, at K = 1000, 200 rounds", {"num_clients": 1000}, "clients_per_round", (1, 5, 25, 100, 400)),
        ("rounds, at K = 30, m = 5", {}, "rounds", (100, 400, 1600, 6400)),
    ):
        print(f"\n| {label} | " + " | ".join(f"{value:,}" for value in values) + " |")
        print("|---" * (len(values) + 1) + "|")
        costs = (microseconds(**fixed, **{name: value}) for value in values)
        print("| µs | " + " | ".join(f"{cost:,.1f}" for cost in costs) + " |", flush=True)


def peak_memory() -> None:
    print("| runs | peak memory of the process, MB | wall, s |\n|---|---|---|")
    for seeds in (100, 1000):
        with tempfile.TemporaryDirectory() as folder:
            spec = Path(folder) / "spec.toml"
            spec.write_text(SPEC.format(seeds=seeds))
            # The second start counts, because it compiles nothing. Compilation would need memory too.
            arguments = ["run", str(spec), "--quiet", "--no-report", "--out"]
            subprocess.run([sys.executable, "-m", "pausejax", *arguments, f"{folder}/first"], check=True)
            # Each study has a child process, because the system reports the peak over all children.
            code = (
                "import resource, subprocess, sys, time; t = time.time();"
                "subprocess.run([sys.executable, '-m', 'pausejax', *sys.argv[1:]], check=True);"
                "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, time.time() - t)"
            )
            done = subprocess.run(
                [sys.executable, "-c", code, *arguments, f"{folder}/second"], check=True, capture_output=True
            )
            kilobytes, took = map(float, done.stdout.split())
            print(f"| {10 * seeds:,} | {kilobytes / 1024:,.0f} | {took:.0f} |", flush=True)


def compilations() -> None:
    groups = [{"name": name} for name in ("pause", "random", "fastest", "sa_pause")]
    print(f"{len(groups)} groups of 30 runs each")
    print("| start | programs asked for | found in the cache | compiled | wall, s |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder) / "spec.toml"
        text = SPEC.format(seeds=3).split("[[policy]]")[0]
        spec.write_text(text + "".join(f'[[policy]]\nname = "{group["name"]}"\n' for group in groups))
        environment = {**os.environ, "PAUSEJAX_CACHE_DIR": f"{folder}/cache"}
        for start in ("first", "second"):
            arguments = ["run", str(spec), "--out", f"{folder}/{start}", "--quiet", "--no-report"]
            begun = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-c", COUNTING, *arguments], check=True, capture_output=True, env=environment
            )
            took = time.perf_counter() - begun
            events = json.loads(done.stdout.splitlines()[-1])
            asked = events.get("/jax/compilation_cache/compile_requests_use_cache", 0)
            hits = events.get("/jax/compilation_cache/cache_hits", 0)
            print(f"| {start} | {asked} | {hits} | {asked - hits} | {took:.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("studies", "widths", "scaling", "memory", "compilations"))
    parser.add_argument("--out", type=Path, help="folder for the picture")
    parser.add_argument("--most", type=int, default=4096, help="largest number of runs side by side")
    options = parser.parse_args()
    {
        "studies": studies,
        "widths": lambda: widths(options.out, options.most),
        "scaling": scaling,
        "memory": peak_memory,
        "compilations": compilations,
    }[options.what]()


if __name__ == "__main__":
    main()
