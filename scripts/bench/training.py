"""Measures the cost of a round of federated training: rounds × runs per second, shares, and the part of the
peak.

    python scripts/bench/training.py [--settings mlp cnn] [--runs 1 8 32 128] [--rounds 10] [--evals 1 10]
    python scripts/bench/training.py --lanes 4 --eval-batch 100 --conv lax      # another layout

Whole rounds are timed as `pausejax run` plays them: PAUSE selects, its cohort trains, clips and adds noise,
and the server aggregates, evaluates and computes scores. The share of selection is measured by a study of the
same network without training. Noise, aggregation and evaluation are measured by separate programs of the same
shapes. The rest is training. Every program's result is read back.

On a CPU, shares and ratios are of CPU seconds of all cores, because other processes hardly change them. On
other backends they are of wall seconds. FLOPs are those of the matrix products, three forward passes for each
step. The peak is that of a product of square matrices on this machine, on one core if CPU seconds are used.
On other backends the least time counts bytes too: every step reads and writes the weights and both moments of
Adam.
"""

import argparse
import contextlib
import json
import os
import platform
import time
from pathlib import Path

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from pausejax.clients.loop import initial_params
from pausejax.data.host import DataCache
from pausejax.execution import rounds as playing
from pausejax.execution.batches import Batch, split
from pausejax.execution.local import LocalExecutor
from pausejax.federated import placement
from pausejax.federated.batches import num_steps
from pausejax.federated.evaluation import evaluate
from pausejax.federated.training import add_in_turn
from pausejax.kinds import parse
from pausejax.privacy import NOISE_GENERATORS, privatize
from pausejax.study.plan import make_plan

SETTINGS = {
    "mlp": ({"dataset": "mnist", "train_samples": 2000}, {"model": "mlp"}, (30, 5), 1.25, 0.62),
    "cnn": ({"dataset": "cifar10"}, {"model": "cnn_cifar"}, (30, 5), 16.0, None),
    "mlp300": ({"dataset": "mnist"}, {"model": "mlp"}, (300, 15), None, None),
}
"""Data, training, (K, m), and two CPU seconds of a round of the paper's code on a similar machine with two
cores:
as published, and with preloaded images. The code uses brute force and evaluates every round."""


def timed(call, repeats):
    """Returns the least wall seconds and the least CPU seconds of some repeats, after a first call."""
    call()
    wall, cpu = [], []
    for _ in range(repeats):
        begun, begun_cpu = time.perf_counter(), time.process_time()
        call()
        wall.append(time.perf_counter() - begun)
        cpu.append(time.process_time() - begun_cpu)
    return min(wall), min(cpu)


def peaks():
    """Measures the FLOP/s of a float32 matrix product and the bytes/s of a copy."""
    on_cpu = jax.default_backend() == "cpu"
    matrix = jnp.ones((2048, 2048) if on_cpu else (8192, 8192))
    product = jax.jit(jnp.matmul)
    seconds = counted(timed(lambda: product(matrix, matrix).block_until_ready(), 5))
    block = jnp.ones(2**26 if on_cpu else 2**30)
    copy = jax.jit(lambda x: x + 1)
    copied = counted(timed(lambda: copy(block).block_until_ready(), 3))
    return 2 * matrix.shape[0] ** 3 / seconds, 2 * block.nbytes / copied


def counted(seconds):
    """Returns the seconds of which shares and ratios are computed: CPU seconds on a CPU, else wall
    seconds."""
    return seconds[1 if jax.default_backend() == "cpu" else 0]


def study(setting, runs, rounds, eval_every, **changes):
    data, training, (clients, selected), *_ = SETTINGS[setting]
    document = {
        "seeds": runs,
        "rounds": rounds,
        "eval_every": eval_every,
        "network": {"num_clients": clients, "clients_per_round": selected},
        "data": data,
        "training": {**training, "persist_optimizer": True},
        "policy": [{"name": "pause"}],
        **changes,
    }
    return make_plan(parse(document))


def override(options):
    """Sets the placement of work in the package from the options of the command line."""
    names = ("lanes", "eval_lanes", "eval_batch", "conv")
    wanted = {name: getattr(options, name) for name in names if getattr(options, name)}
    if not wanted:
        return
    measured = placement.choose

    def choose(*args, **kwargs):
        return measured(*args, **kwargs)._replace(**wanted)

    placement.choose = choose


def play(plan, cache, repeats):
    """Returns (wall, CPU) seconds of one round of all runs, and the simulation of their group."""
    (group,) = plan.groups
    batch, executor = Batch(group, group.runs, len(group.runs)), LocalExecutor(cache)
    executor.prepare(plan.study, [batch])
    program = executor.program(plan.study, group)
    (whole,) = split(batch, program.executable().width)
    wall, cpu = timed(lambda: playing.play_rounds(program, whole.runs, lambda _: None), repeats)
    executor.close()
    return (wall / plan.study.rounds, cpu / plan.study.rounds), program.simulation


def parts(simulation, own, repeats):
    """Returns (wall, CPU) seconds of noise, aggregation and evaluation in one round; FLOPs; bytes."""
    config, (world, _) = simulation.config, simulation.arguments(own)
    learning = config.learning
    training = learning.training
    generator = training.noise_generator
    params = initial_params(learning.model, world.seed)
    one = jax.tree.map(lambda leaf: leaf[0], params)
    unravel = ravel_pytree(one)[1]
    runs, size = len(own), learning.num_parameters
    jobs = runs * config.clients_per_round
    lanes = min(training.lanes, jobs)
    chunks = -(-jobs // lanes)
    keys = jax.random.split(jax.random.key(0), chunks * lanes).reshape(chunks, lanes)
    update = jnp.full((lanes, size), 1e-3)

    @jax.jit
    def noise(keys):
        def one(total, keys):
            noised = jax.vmap(
                lambda key, update: privatize(key, update, 2.0, 0.01, noise_generator=generator)
            )
            return total + noised(keys, update), None

        return jax.lax.scan(one, jnp.zeros((lanes, size)), keys)[0]

    @jax.jit
    def aggregate(params, update):
        def one(total, rows):
            return add_in_turn(total, rows, update * 0.2), None

        rows = (jnp.arange(chunks * lanes) % runs).reshape(chunks, lanes)
        total = jax.lax.scan(one, jnp.zeros((runs, size)), rows)[0]
        return jax.tree.map(jnp.add, params, jax.vmap(unravel)(total))

    score = jax.jit(lambda params: evaluate(learning, world.test, params))
    seconds = {
        "noise": timed(lambda: jax.block_until_ready(noise(keys)), repeats),
        "aggregation": timed(lambda: jax.block_until_ready(aggregate(params, update)), repeats),
        "evaluation": timed(lambda: jax.block_until_ready(score(params)), repeats),
    }
    forward = matrix_flops(learning.model, one, learning.input_shape)
    steps = jobs * float(jnp.mean(num_steps(training, world.data.size)))
    return (
        seconds,
        {
            "training": 3 * forward * training.batch_size * steps,
            "evaluation": forward * int(jnp.sum(world.test.exists)) * runs,
        },
        # weights and both moments, read and written; the batch's pixels
        steps * (6 * 4 * size + training.batch_size * world.data.inputs.shape[1]),
    )


def matrix_flops(model, weights, image_shape):
    """Returns the FLOPs of matrix products and convolutions in the forward pass of one image."""
    jaxpr = jax.make_jaxpr(model.apply)(*weights, jnp.zeros((1, *image_shape)))

    def count(jaxpr):
        total = 0
        for equation in jaxpr.eqns:
            for inner in jax.tree.leaves(list(equation.params.values())):
                if hasattr(inner, "jaxpr"):
                    total += count(inner.jaxpr)
            if equation.primitive.name == "dot_general":
                (contracted, _), _ = equation.params["dimension_numbers"]
                left = equation.invars[0].aval.shape
                depth = 1
                for axis in contracted:
                    depth *= left[axis]
                total += 2 * depth * equation.outvars[0].aval.size
            elif equation.primitive.name == "conv_general_dilated":
                kernel = equation.invars[1].aval.shape
                total += 2 * equation.outvars[0].aval.size * kernel[0] * kernel[1] * kernel[2]
        return total

    return count(jaxpr.jaxpr)


def measure(setting, runs, options, peak, bandwidth):
    cache = DataCache(options.data_dir)
    row = {"setting": setting, "runs": runs}
    for every in options.evals:
        rounds = max(every, options.rounds // every * every)
        plan = study(setting, runs, rounds, every, privacy={"noise_generator": options.noise})
        seconds, simulation = play(plan, cache, options.repeats)
        whole = counted(seconds)
        row[f"per_s_eval_{every}"] = round(runs / seconds[0], 2)
        row[f"per_cpu_s_eval_{every}"] = round(runs / seconds[1], 2)
        for name, reference in zip(("shipped", "preloaded"), SETTINGS[setting][3:], strict=True):
            if reference:
                row[f"times_{name}_eval_{every}"] = round(runs / whole * reference, 1)
    if not options.shares:
        return row
    # The last measurement counts: that of the longest interval between evaluations.
    seconds, flops, moved = parts(simulation, plan.runs, options.repeats)
    bandit = study(setting, runs, 25, 25, mode="bandit", data={}, training={})
    part = {name: counted(pair) for name, pair in seconds.items()}
    part["evaluation"] /= every
    part["selection"] = counted(play(bandit, cache, options.repeats)[0])
    part["training"] = whole - sum(part.values())
    row["shares_%"] = {name: round(100 * value / whole, 1) for name, value in sorted(part.items())}
    done = flops["training"] + flops["evaluation"] / every
    floor = done / peak
    if jax.default_backend() != "cpu":
        floor = max(floor, moved / bandwidth)
    row["gflop_per_round_and_run"] = round(done / runs / 1e9, 3)
    row["share_of_peak_%"] = round(100 * done / whole / peak, 1)
    row["training_share_of_peak_%"] = round(100 * flops["training"] / part["training"] / peak, 1)
    row["floor_reached_%"] = round(100 * floor / whole, 1)
    return row


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--runs", type=int, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--evals", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-shares", dest="shares", action="store_false")
    for name in ("lanes", "eval-lanes", "eval-batch"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--noise", choices=NOISE_GENERATORS, default="threefry")
    parser.add_argument("--conv", choices=("im2col", "lax"))
    parser.add_argument("--data-dir", default=os.environ.get("PAUSEJAX_DATA_DIR"))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with contextlib.suppress(RuntimeError):  # the devices are in use already, so they stay as they are
        jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
    override(options)
    peak, bandwidth = peaks()
    machine = (
        f"{jax.device_count()} × {jax.devices()[0].device_kind}, {platform.machine()}, jax {jax.__version__}"
    )
    print(f"{machine}; peak {peak / 1e9:,.0f} GFLOP/s, copy {bandwidth / 1e9:,.1f} GB/s", flush=True)
    rows = []
    for setting in options.settings:
        for runs in options.runs:
            rows.append(measure(setting, runs, options, peak, bandwidth))
            print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    if options.json:
        found = {"machine": machine, "peak": peak, "bandwidth": bandwidth, "rows": rows}
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
