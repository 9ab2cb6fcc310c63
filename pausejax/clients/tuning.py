"""How long learning takes in one layout or another: its round, shortened, with the study's own shapes.

Training and evaluation are programs of their own here, much smaller than the whole, so that another layout
costs a second or two, most of it for compiling. Cohorts are made up, runs, steps and test samples few.
"""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable
from typing import Any, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from pausejax.clients.costs import FORWARDS, flops_per_sample
from pausejax.clients.learning import evaluate, learn
from pausejax.clients.parameters import learns
from pausejax.clients.play import of_world
from pausejax.clients.program import Hyper, Program, State, World
from pausejax.clients.simulation import ClientSimulation
from pausejax.data.host import Sources
from pausejax.devices import SHARED, compile_for, put, runs_mesh
from pausejax.federated import batches, placement
from pausejax.federated.batches import num_steps
from pausejax.federated.placement import ConvVariant, Placement
from pausejax.policies.base import Cohort
from pausejax.study.study import Group, Plan
from pausejax.study.trials import Layout, Trials, Variants, best_of

_FLOPS = {"cpu": 5e9}
"""What a timing may cost each device: some tenths of a second."""
_FLOPS_ELSEWHERE = 5e11
_STEPS = 8
_RUNS = {"cpu": 16}
"""On each device."""
_RUNS_ELSEWHERE = 1024
_SAMPLES = range(200, 2001)
_POWERS = tuple(2**power for power in range(13))
_EVAL_BATCHES = (20, 50, 100, 200, 500, 1000, 2000)


class _Size(NamedTuple):
    """How much is timed."""

    runs: int
    steps: int
    samples: int
    """Of the test set."""


def variants(plan: Plan, group: Group, sources: Sources) -> Variants | None:
    """What of a group's learning may lie on the local devices in several ways; None in mode "bandit".

    Policies share it: whom they choose changes nothing.
    """
    study = plan.study
    if not learns(study.mode):
        return None
    policy = study.parts.get("policy", group.algorithm)
    needed = {name: group.static[name] for name in ("num_clients", "clients_per_round", "batch_size")}
    told = {
        **{name: value for name, value in group.static.items() if name not in policy.reads},
        **needed,
        "shape": study.kind.shape(plan.runs_of(group)[0].values),
        "eval_every": study.eval_every,
        "use": sorted(source.digest for source in study.parts.sources),
    }
    key = hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()[:16]
    return Variants(f"learning {key}", functools.partial(_trials, plan, group, sources), _sound)


def _sound(layout: Layout) -> bool:
    try:
        placement.read(layout)
    except (TypeError, ValueError):
        return False
    return True


def _trials(plan: Plan, group: Group, sources: Sources) -> Trials:
    make: Callable[..., ClientSimulation] = functools.partial(ClientSimulation, plan, group, sources)
    usual = make()
    learning, start, size = usual.program.learning, usual.layout, _size(usual, len(group.members))
    assert learning is not None
    devices = runs_mesh(size.runs).size
    options: dict[str, Any] = {
        "lanes": _around(_POWERS, start["lanes"], usual.program.clients_per_round * size.runs // devices),
        "eval_batch": _around(_EVAL_BATCHES, start["eval_batch"], size.samples),
        "eval_lanes": _around(_POWERS, start["eval_lanes"], size.runs // devices),
    }
    if learning.model.convolutional:
        options["conv"] = get_args(ConvVariant)
    training = functools.cache(functools.partial(_time_training, make, size))
    evaluation = functools.cache(functools.partial(_time_evaluation, make, size))

    def seconds(layout: Layout) -> float:
        lanes, *of_evaluation, conv = placement.read(layout)
        return training(lanes, conv) + evaluation(*of_evaluation, conv) / plan.study.eval_every

    return Trials(start, options, seconds)


def _around(values: tuple[int, ...], start: Any, most: int) -> tuple[int, ...]:
    """Some values, none beyond `most`, and the start among them."""
    return tuple(sorted({*(value for value in values if value <= most), start}))


def _size(simulation: ClientSimulation, runs: int) -> _Size:
    program, test = simulation.program, simulation.world.test
    learning, backend = program.learning, jax.default_backend()
    assert learning is not None and test is not None
    devices = runs_mesh(runs).size
    flops = _FLOPS.get(backend, _FLOPS_ELSEWHERE)
    sample = flops_per_sample(learning, test)
    step = program.clients_per_round * learning.training.batch_size * FORWARDS * sample
    steps = max(1, min(_STEPS, learning.training.max_steps, int(flops / step)))
    most = max(1, min(runs // devices, _RUNS.get(backend, _RUNS_ELSEWHERE)))
    each = max(1, min(most, int(flops / (step * steps))))
    samples = min(max(int(flops / (each * sample)), _SAMPLES[0]), _SAMPLES[-1])
    return _Size(each * devices, steps, samples)


def _time_training(
    make: Callable[..., ClientSimulation], size: _Size, lanes: int, conv: ConvVariant
) -> float:
    simulation = make(layout=Placement(lanes, 1, _SAMPLES[-1], conv)._asdict())
    program = simulation.program
    assert program.learning is not None and simulation.world.data is not None
    training = program.learning.training
    fewer = dataclasses.replace(training, max_steps=min(training.max_steps, size.steps))
    short = dataclasses.replace(program, learning=dataclasses.replace(program.learning, training=fewer))
    world, hyper, state = _begin(simulation, size)
    call = _compiled(_train, short, world, hyper, state)
    owned = jnp.asarray(simulation.world.data.size)
    whole, part = (float(np.mean(num_steps(own, owned))) for own in (training, fewer))
    return best_of(lambda: call(world, hyper, state)) / size.runs * whole / part


def _time_evaluation(
    make: Callable[..., ClientSimulation], size: _Size, eval_lanes: int, eval_batch: int, conv: ConvVariant
) -> float:
    simulation = make(layout=Placement(1, eval_lanes, eval_batch, conv)._asdict())
    world, hyper, state = _begin(simulation, size)
    assert simulation.world.test is not None
    whole = np.asarray(simulation.world.test.exists)
    test = batches.few(simulation.world.test, size.samples, eval_batch)
    world = world._replace(test=put(test, runs_mesh(size.runs), SHARED))
    call = _compiled(_evaluate, simulation.program, world, hyper, state)
    return best_of(lambda: call(world, hyper, state)) / size.runs * whole.sum() / test.exists.sum()


def _begin(simulation: ClientSimulation, size: _Size) -> tuple[World, Hyper, State]:
    rows = np.arange(size.runs)
    return *simulation.arguments(rows), simulation.start(rows)


def _compiled(
    function: Callable[..., Any], program: Program, world: World, hyper: Hyper, state: State
) -> Callable[..., Any]:
    """A piece of a round, each device with its share of the runs, as `play.play`."""
    runs = P("runs")
    split = jax.shard_map(
        functools.partial(function, program),
        mesh=runs_mesh(len(world.seed)),
        in_specs=(of_world(runs, P()), runs, runs),
        out_specs=runs,
        check_vma=False,
    )
    return compile_for(jax.jit(split).lower(world, hyper, state))


def _train(program: Program, world: World, hyper: Hyper, state: State) -> Any:
    slots = program.clients_per_round
    first = world.seed[:, None].astype(jnp.int32) * slots
    members = (first + jnp.arange(slots)[None, :]) % program.num_clients
    keys = jax.vmap(jax.random.key)(world.seed)
    cohort = Cohort(members, jnp.full(members.shape, 1 / slots))
    weights, memory, trained, _ = learn(program, world, hyper, state, keys, cohort)
    return weights, memory, trained.loss


def _evaluate(program: Program, world: World, hyper: Hyper, state: State) -> Any:
    assert program.learning is not None
    return evaluate(program.learning, world, state.params, state.bandit.counts)
