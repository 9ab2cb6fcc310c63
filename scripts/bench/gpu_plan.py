"""Estimates launches, memory traffic and time of a round on a GPU from the compiled program, without a GPU.

    pip install 'pausejax[gpu-plan]'
    python scripts/bench/gpu_plan.py --case 'pause-*' mlp [--device h100 a100 l4] [--out out/gpu_plan]
    python scripts/bench/gpu_plan.py --case mlp --runs 8 --set training.precision=tf32 --kernels 10
    python scripts/bench/gpu_plan.py --table docs/gpu.md         # writes the tables of all that was found

XLA compiles each case for a device of `gpu_model/targets.py`. Launches, graphs, synchronisations and memory
are XLA's figures. Bytes and FLOPs are those of the kernels' operands, which are read once. Times are from a
model that is not calibrated on any device. A case takes 5 to 60 seconds. --out keeps a file with the result
of each case, which is compiled again only with --again.
"""

import argparse
import fnmatch
import json
import os
import sys
import time
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"
sys.path.insert(0, str(Path(__file__).parent))

import jax
from gpu_model import tables
from gpu_model.cases import CASES
from gpu_model.hlo import facts
from gpu_model.programs import compile_case, roofline
from gpu_model.targets import TARGETS

from pausejax.federated import placement


def changes_of(items: list[str]) -> dict[str, object]:
    """Parses `key=value` to values by dotted key; a value that is not JSON is a string."""
    found = {}
    for item in items:
        key, value = item.split("=", 1)
        try:
            found[key] = json.loads(value)
        except json.JSONDecodeError:
            found[key] = value
    return found


def place(items: list[str]) -> None:
    """Sets the placement of work in the package from `key=value` arguments."""
    if wanted := changes_of(items):
        usual = placement.choose
        placement.choose = lambda *args, **kwargs: usual(*args, **kwargs)._replace(**wanted)


def look_at(name: str, runs: int, device: str, options: argparse.Namespace) -> dict[str, object]:
    """Compiles and counts one case, and returns its results as they are stored."""
    case = CASES[name]
    begun, changes = time.perf_counter(), changes_of(options.set)
    told = changes_of(options.xla)
    found = compile_case(case, runs, target=device, changes=changes, options=told, count=options.devices)
    counts, precision = found.counts, str(changes.get("training.precision", "highest"))
    for kernel in found.kernels[: options.kernels]:
        print(f"  {kernel.times * kernel.seconds * 1e6:9.1f} µs = {kernel.times:g} x {kernel.name}")
    return {
        "case": name,
        "runs": runs,
        "device": device,
        "devices": options.devices,
        "changes": changes,
        "options": told,
        "jax": jax.__version__,
        "launches": counts.launches,
        "in_graphs": counts.in_graphs,
        "graphs": counts.graphs,
        "syncs": counts.syncs,
        "bytes": counts.bytes,
        "flops": counts.flops,
        "memory": found.memory,
        "arguments": found.arguments,
        "seconds": counts.seconds,
        "roofline": roofline(found, device, precision),
        "goal": case.goal.get(runs),
        "unknown": found.unknown,
        **facts(found.module),
        "took": round(time.perf_counter() - begun, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", nargs="*", default=[], help=f"patterns of cases: {', '.join(CASES)}")
    parser.add_argument("--runs", nargs="*", type=int, help="runs side by side (default: those of the case)")
    parser.add_argument("--device", nargs="*", default=["h100"], choices=list(TARGETS))
    parser.add_argument("--devices", type=int, default=1, help="number of devices")
    parser.add_argument("--set", nargs="*", default=[], help="section.key=value changes of the spec")
    parser.add_argument("--xla", nargs="*", default=[], help="option=value settings of the compiler")
    parser.add_argument(
        "--place", nargs="*", default=[], help="layout: lanes=, eval_lanes=, eval_batch=, conv="
    )
    parser.add_argument("--tag", default="", help="ending of the names of files, which separates variants")
    parser.add_argument(
        "--kernels", type=int, default=0, help="number of the most expensive kernels to print"
    )
    parser.add_argument("--out", type=Path, default=Path("out/gpu_plan"))
    parser.add_argument("--again", action="store_true", help="compile cases again that have a file")
    parser.add_argument("--table", type=Path, help="page into which the tables of all files are written")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    place(options.place)
    for name in (n for n in CASES if any(fnmatch.fnmatchcase(n, pattern) for pattern in options.case)):
        for device in options.device:
            for runs in options.runs or CASES[name].runs:
                file = options.out / f"{device}-{name}-{runs}{options.tag}.json"
                if file.exists() and not options.again:
                    continue
                try:
                    found = look_at(name, runs, device, options)
                except Exception as error:
                    print(
                        f"{name}, {runs} runs, {device}: {type(error).__name__}: {str(error)[:300]}",
                        flush=True,
                    )
                    continue
                file.write_text(json.dumps({"tag": options.tag, **found}, indent=1, ensure_ascii=False))
                print(tables.line(found), flush=True)
    if options.table:
        tables.write(
            options.table, [json.loads(file.read_text()) for file in sorted(options.out.glob("*.json"))]
        )


if __name__ == "__main__":
    main()
