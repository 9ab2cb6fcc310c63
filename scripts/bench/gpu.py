"""Times the cases of `gpu_plan.py` on the devices that JAX has, and compares them with its model.

    python scripts/bench/gpu.py [--case 'pause-*' mlp] [--minutes 9] [--out out/gpu.json] [--table out/gpu.md]
    python scripts/bench/gpu.py --small                          # a few cases, tiny, on any device

Data are noise with the shapes of the data sets, so no data set is needed. Programs compile while others are
timed. Cases for which no time is left are named and left out. For some cases with training, other layouts are
timed too. The fastest layout should be a row of `pausejax/measured.json`. The model's times are those of the
device's table in docs/gpu.md. If the device has no table, those of the H100 are used.
"""

import argparse
import fnmatch
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import jax
import jax.numpy as jnp
from gpu_model import tables
from gpu_model.cases import CASES, Case, document
from gpu_model.targets import TARGETS

from pausejax.data.host import DataCache
from pausejax.devices import SHARED, compile_for, put, runs_mesh
from pausejax.execution.memory import device_memory, program_memory
from pausejax.execution.program import GroupProgram
from pausejax.execution.runtime import set_up_jax
from pausejax.kinds import parse
from pausejax.study.plan import make_plan
from pausejax.study.simulation import Layout

PAGE = Path(__file__).resolve().parents[2] / "docs" / "gpu.md"
ORDER = ("mlp", "pause-30", "cnn_cifar", "sa_pause-30", "pause-300", "cnn_mnist", "*")
"""Cases that are measured first; the others follow in the order of the table."""
TUNED = {"mlp": (8, 128), "cnn_mnist": (8,), "cnn_cifar": (8,)}
"""Numbers of runs for which other layouts are timed, by case."""
SMALL = ("pause-30", "sa_pause-30", "mlp", "efl_fg")
SMALL_CHANGES = {"data.train_samples": 600, "training.max_steps": 2}
_SECONDS = 1.0
"""Time for which a case is measured, seconds."""
_GAIN = 0.03
"""Least gain of another layout, as a share of the time. Smaller gains are noise."""


class CaseProgram(GroupProgram):
    """Case with its simulation and its program, which compiles while others are timed."""

    def __init__(
        self, case: Case, runs: int, changes: dict[str, Any], cache: DataCache, layout: Layout | None = None
    ) -> None:
        learns = case.document.get("mode") not in ("bandit", "ensemble")
        plan = make_plan(parse(document(case, runs, changes if learns else {})))
        (group,) = plan.groups
        super().__init__(plan.study, group, cache, layout, device_memory=device_memory())
        self.runs, self.learns = runs, learns

    def seconds(self, call: jax.stages.Compiled) -> float:
        """Returns the wall seconds of a round of all runs: the least of the calls that fit into a second."""
        simulation, runs = self.simulation, self.group.runs
        rows = [*runs, *[runs[-1]] * (simulation.padded(self.runs) - self.runs)]
        mesh, rounds = runs_mesh(len(rows)), simulation.rounds_per_call
        arguments, state = simulation.arguments(rows), simulation.start(rows)
        # The last round is out of reach, because it would be evaluated in addition.
        last = put(jnp.int32(2**30), mesh, SHARED)
        taken: list[float] = []
        while len(taken) < 3 or (sum(taken) < _SECONDS and len(taken) < 100):
            first = put(jnp.int32(1 + rounds * (len(taken) % 2)), mesh, SHARED)
            begun = time.perf_counter()
            state, _ = jax.block_until_ready(call(*arguments, state, first, last))
            taken.append(time.perf_counter() - begun)
        return min(taken[1:]) / rounds


def chosen(patterns: list[str], small: bool) -> list[tuple[str, int]]:
    """Returns the selected cases and their runs, in `ORDER`."""
    asked = [name for name in (SMALL if small else CASES) if any(fnmatch.fnmatch(name, p) for p in patterns)]
    asked.sort(key=lambda name: next(n for n, pattern in enumerate(ORDER) if fnmatch.fnmatch(name, pattern)))
    return [
        (name, min(runs, 4) if small else runs)
        for name in asked
        for runs in CASES[name].runs[: 1 if small else None]
    ]


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Returns the results of the cases; prints the cases for which no time was left."""
    cache, begun, found = DataCache(), time.monotonic(), []
    changes = SMALL_CHANGES if options.small else {}
    left = chosen(options.case, options.small)

    def spent() -> bool:
        return time.monotonic() - begun > 60 * options.minutes

    with ThreadPoolExecutor(max(1, (os.cpu_count() or 2) // 2)) as threads:

        def begin(name: str, runs: int) -> tuple[str, CaseProgram, Any, float]:
            program = CaseProgram(CASES[name], runs, changes, cache)
            return name, program, threads.submit(compile_for, program.lower(runs)), time.monotonic()

        ahead = [begin(*left.pop(0)) for _ in range(min(len(left), 2))]
        while ahead:
            name, program, compiled, asked = ahead.pop(0)
            if left and not spent():
                ahead.append(begin(*left.pop(0)))
            row = {"case": name, "runs": program.runs, "tuned": False}
            try:
                call = compiled.result()
                row |= {"compiled": time.monotonic() - asked, "memory": program_memory(call)}
                row["seconds"] = program.seconds(call)
                found.append(row | {"layout": program.layout._asdict()})
                print(told(found[-1]), flush=True)
                if program.learns and (options.small or program.runs in TUNED.get(name, ())) and not spent():
                    found += faster_layouts(name, program, changes, cache, options.tune)
            except jax.errors.JaxRuntimeError as error:
                print(f"{name}, {program.runs} runs: {str(error).splitlines()[0][:200]}", flush=True)
            program.release()
    for name, runs in left:
        print(f"{name}, {runs} runs: no time left", flush=True)
    return found


def faster_layouts(
    name: str, program: CaseProgram, changes: dict[str, Any], cache: DataCache, seconds: float
) -> list[dict[str, Any]]:
    """Doubles and halves each value of the layout in turn, as long as a round becomes faster.

    Whole programs are compiled and timed. No new layout is tried after `seconds`.

    Returns:
      The fastest layout, as a row of `pausejax/measured.json`; an empty list if no layout is faster.
    """
    begun = time.monotonic()
    usual = best = program.layout
    tried = {best: program.seconds(compile_for(program.lower(program.runs)))}
    for field in ("lanes", "eval_lanes", "eval_batch", "conv"):
        for step in ("x2", "/2"):
            while time.monotonic() - begun < seconds:
                layout = neighbour(best, field, step)
                if layout in tried:
                    break
                again = CaseProgram(CASES[name], program.runs, changes, cache, layout)
                tried[layout] = again.seconds(compile_for(again.lower(again.runs)))
                again.release()
                if tried[layout] > (1 - _GAIN) * tried[best]:
                    break
                best = layout
    if best == usual:
        print(f"{name}, {program.runs} runs: the default is the fastest of {len(tried)} layouts", flush=True)
        return []
    again = CaseProgram(CASES[name], program.runs, changes, cache, best)
    row = {"case": name, "runs": program.runs, "tuned": True, "layout": best._asdict()}
    needed = program_memory(compile_for(again.lower(again.runs)))
    row |= {"seconds": tried[best], "memory": needed, "tried": len(tried)}
    print(told(row), flush=True)
    return [row]


def neighbour(layout: Layout, field: str, step: str) -> Layout:
    """Returns a layout with one value doubled or halved, or with the other implementation of convolutions."""
    value = getattr(layout, field)
    if field == "conv":
        return layout._replace(conv="lax" if value == "im2col" else "im2col")
    return layout._replace(**{field: value * 2 if step == "x2" else max(value // 2, 1)})


def told(row: dict[str, Any]) -> str:
    layout = ", ".join(f"{name} {value}" for name, value in row["layout"].items())
    how = f" ({'tuned: ' if row['tuned'] else ''}{layout})" if layout else ""
    rate = row["runs"] / row["seconds"]
    return (
        f"{row['case']}, {row['runs']} runs: {row['seconds'] * 1e6:,.1f} µs, {rate:,.0f} rounds x runs/s{how}"
    )


def table(found: list[dict[str, Any]], model: dict[tuple[str, int], float]) -> str:
    """Returns the table of modelled and measured times for a page."""
    lines = [
        "| case | runs | layout | model, µs | measured, µs | ratio | rounds × runs per s | memory, GB |",
        "|" + " --- |" * 8,
    ]
    for row in found:
        modelled = model.get((row["case"], row["runs"])) if not row["tuned"] else None
        measured = row["seconds"] * 1e6
        layout = " ".join(str(value) for value in row["layout"].values())
        cells = [row["case"], f"{row['runs']:,}", f"{'tuned ' if row['tuned'] else ''}{layout}"]
        cells += [f"{modelled:,.0f}" if modelled else "", f"{measured:,.1f}"]
        cells += [
            f"{measured / modelled:.2f}" if modelled else "",
            tables.short(row["runs"] / row["seconds"]),
        ]
        lines.append("| " + " | ".join([*cells, f"{row['memory'] / 1e9:.3f}"]) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", nargs="*", default=["*"], help=f"patterns of cases: {', '.join(CASES)}")
    parser.add_argument("--small", action="store_true", help=f"time only tiny cases: {', '.join(SMALL)}")
    parser.add_argument("--minutes", type=float, default=9.0, help="minutes after which no case is begun")
    parser.add_argument("--tune", type=float, default=20.0, help="seconds for the other layouts of a case")
    parser.add_argument("--out", type=Path, default=Path("out/gpu.json"))
    parser.add_argument("--table", type=Path, help="file for the table")
    options = parser.parse_args()
    set_up_jax()
    device = jax.local_devices()[0].device_kind
    known = {target.name for target in TARGETS.values()}
    modelled = device if device in known else TARGETS["h100"].name
    found = measure(options)
    # The model has no tiny cases.
    page = table(found, {} if options.small else tables.modelled(PAGE.read_text(), modelled))
    head = f"{jax.local_device_count()} × {device}, jax {jax.__version__}; model of {modelled}"
    options.out.parent.mkdir(parents=True, exist_ok=True)
    kept = {"device": device, "jax": jax.__version__, "model": modelled, "found": found}
    options.out.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    print(f"{head}\n\n{page}")
    if options.table:
        options.table.write_text(f"{head}:\n\n{page}\n")


if __name__ == "__main__":
    main()
