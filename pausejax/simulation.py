"""One round, and the scan over rounds, for all runs of a group at once.

A group is every run that shares one `Program` (what is static). `start` makes the state before the first
round, `play` advances all runs by a fixed number of rounds; both are pure and jitted once per program. The
round itself goes: select, draw latencies, train and privatize, aggregate, evaluate, update the policy.
"""

import dataclasses
import functools
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from pausejax import bandit, network, privacy, regret
from pausejax.federated.evaluation import HeldOut, evaluate
from pausejax.federated.models import Model
from pausejax.federated.training import (
    Jobs,
    LocalTraining,
    Rates,
    TrainingData,
    client_loss,
    init_optimizer,
    train,
)
from pausejax.policies.base import Clients, Feedback, Policy, View
from pausejax.scoring import score_round

Hyper = dict[str, jax.Array]
"""Traced hyper-parameters by name, float32 [R] each."""


@dataclasses.dataclass(frozen=True)
class Learning:
    """The static half of mode "training"."""

    model: Model
    image_shape: tuple[int, ...]
    longest: int
    """The largest number of samples that any client owns."""
    num_parameters: int
    training: LocalTraining


@dataclasses.dataclass(frozen=True)
class Program:
    """Everything that shapes the compiled program: one compilation each."""

    policy: str
    constructor: Callable[..., Policy]
    options: tuple[tuple[str, Any], ...]
    """Static keyword arguments of the constructor."""
    traced: tuple[str, ...]
    """Names of the traced keyword arguments of the constructor."""
    num_clients: int
    clients_per_round: int
    latency: network.Law
    clock: str
    rounds_per_call: int
    eval_every: int
    selection_gap: bool = False
    """Whether to search (14) exactly beside the policy, and record what its cohort falls short of."""
    learning: Learning | None = None
    """None in mode "bandit"."""

    def build(self, hyper: Hyper) -> Policy:
        """The policy of one run (or, under vmap, of each)."""
        return self.constructor(**dict(self.options), **{name: hyper[name] for name in self.traced})


class World(NamedTuple):
    """What the runs of a group live in; shared arrays, and one row per run where it says [R]."""

    seed: jax.Array
    """uint32 [R]."""
    data_share: jax.Array
    """float32 [R, K]."""
    partition: jax.Array
    """int32 [R], row of `data`'s partitions."""
    trace: jax.Array
    """float32 [T, K] measured latencies, [0, K] without."""
    data: TrainingData | None
    test: HeldOut | None


class State(NamedTuple):
    """All runs between two rounds; leading axis [R]."""

    bandit: bandit.BanditState
    """What the server has seen of its clients whatever its policy: participations T_k, the privacy ledger
    of every run, and mean rewards; [R, K]."""
    genie: jax.Array
    """int32 [R, K], the participations in the genie's own trajectory."""
    policy: Any
    params: Any
    optimizer: Any
    diverged: jax.Array
    """int32 [R], the round in which a run's model ceased to be finite; 0: never."""


class Record(NamedTuple):
    """What one round leaves in the result, [R] each unless said."""

    round_latency: jax.Array
    reward: jax.Array
    regret: jax.Array
    pseudo_regret: jax.Array
    regret_own_history: jax.Array
    max_leakage: jax.Array
    max_leakage_update: jax.Array
    selection_gap: jax.Array
    train_loss: jax.Array
    test_accuracy: jax.Array
    test_loss: jax.Array
    diverged_round: jax.Array
    """int32, as `State.diverged`."""
    selected: jax.Array
    """int32 [R, n], -1 pads."""


# All randomness derives from a run's seed: what a purpose draws in a round never depends on another purpose.
_LATENCY, _POLICY, _CLIENT = range(3)


def _initial_key(seed: jax.Array) -> jax.Array:
    return jax.random.fold_in(jax.random.key(seed), 0)


def _round_key(seed: jax.Array, round: jax.Array) -> jax.Array:
    """The key of one round, t >= 1, of one run."""
    return jax.random.fold_in(jax.random.key(seed), round)


def _policy_key(program: Program, round_key: jax.Array) -> jax.Array:
    """Differs between policies, so that two of them that draw do not draw alike."""
    purpose = zlib.crc32(program.policy.encode()) & 0x7FFFFFFF
    return jax.random.fold_in(jax.random.fold_in(round_key, _POLICY), purpose)


def _network(program: Program, hyper: Hyper, trace: jax.Array) -> network.Network:
    names = ("min_latency", "fast_latency", "slow_latency", "slow_range", "latency_deviation")
    return network.make_network(
        program.num_clients,
        **{name: hyper[name] for name in names},
        trace=trace if program.latency == "trace" else None,
    )


@functools.partial(jax.jit, static_argnums=0)
def initial_params(model: Model, seed: jax.Array) -> Any:
    """Initial global models of uint32 [R] seeds, pytree [R, ...]: the same for every policy."""
    return jax.vmap(lambda seed: model.init(_initial_key(seed)))(seed)


@functools.partial(jax.jit, static_argnums=0)
def start(program: Program, world: World, hyper: Hyper, params: Any = None) -> State:
    """The state before round 1, from the runs' initial global models, pytree [R, ...] (mode "training")."""

    def init_policy(seed: jax.Array, data_share: jax.Array, hyper: Hyper) -> Any:
        law = _network(program, hyper, world.trace)
        clients = Clients(data_share, network.expected_latency(program.latency, law))
        return program.build(hyper).init(_policy_key(program, _initial_key(seed)), clients)

    policy = jax.vmap(init_policy)(world.seed, world.data_share, hyper)
    runs = world.seed.shape[0]
    learning = program.learning
    return State(
        bandit=jax.vmap(lambda _: bandit.init(program.num_clients))(world.seed),
        genie=jax.vmap(lambda _: regret.init(program.num_clients))(world.seed),
        policy=policy,
        params=params,
        optimizer=init_optimizer(learning.training, params, program.num_clients) if learning else None,
        diverged=jnp.zeros(runs, jnp.int32),
    )


def runs_mesh(runs: int) -> Mesh:
    """A mesh with one axis, "runs", over the local devices, or fewer if there are fewer runs."""
    devices = jax.local_devices()[: max(runs, 1)]
    return Mesh(np.array(devices), ("runs",))


def shardings(mesh: Mesh) -> tuple[World, NamedSharding]:
    """How a world lies on the devices, and how everything lies that has runs first."""
    split, shared = NamedSharding(mesh, P("runs")), NamedSharding(mesh, P())
    return World(split, split, split, shared, shared, shared), split


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=4)
def play(
    program: Program,
    mesh: Mesh,
    world: World,
    hyper: Hyper,
    state: State,
    first_round: jax.Array,
    last_round: jax.Array,
) -> tuple[State, Record]:
    """Plays rounds `first_round` .. `first_round + rounds_per_call - 1`, none beyond `last_round`.

    Each device plays its own share of the runs; they never communicate.

    Args:
      program: static.
      mesh: static, from `runs_mesh`; its size divides R.
      world: see `World`.
      hyper: see `Hyper`.
      state: donated.
      first_round: int32 scalar, t >= 1.
      last_round: int32 scalar; it is always evaluated, as is every `eval_every`-th round.

    Returns:
      The next state and the records, leading axes [rounds_per_call, R]; rows beyond `last_round` are junk,
      and test results are NaN in rounds without an evaluation.
    """
    runs, shared = P("runs"), P()
    return jax.shard_map(
        functools.partial(_play, program),
        mesh=mesh,
        in_specs=(World(runs, runs, runs, shared, shared, shared), runs, runs, shared, shared),
        out_specs=(runs, P(None, "runs")),
        check_vma=False,
    )(world, hyper, state, first_round, last_round)


def _play(
    program: Program,
    world: World,
    hyper: Hyper,
    state: State,
    first_round: jax.Array,
    last_round: jax.Array,
) -> tuple[State, Record]:
    mean_reward = jax.vmap(
        lambda hyper: network.expected_reward(program.latency, _network(program, hyper, world.trace))
    )(hyper)

    def step(state: State, round: jax.Array) -> tuple[State, Record]:
        played = functools.partial(_round, program, world, hyper, mean_reward, last_round)
        record = jax.eval_shape(played, state, round)[1]
        idle = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), record)
        return jax.lax.cond(round <= last_round, played, lambda state, _: (state, idle), state, round)

    return jax.lax.scan(step, state, first_round + jnp.arange(program.rounds_per_call))


def _round(
    program: Program,
    world: World,
    hyper: Hyper,
    mean_reward: jax.Array,
    last_round: jax.Array,
    state: State,
    round: jax.Array,
) -> tuple[State, Record]:
    learning = program.learning

    def select(
        key: jax.Array, hyper: Hyper, policy_state: Any, params: Any, partition: jax.Array
    ) -> tuple[Any, jax.Array]:
        law = _network(program, hyper, world.trace)
        latency = network.sample(program.latency, jax.random.fold_in(key, _LATENCY), law)
        view = View(round, latency, _local_loss(learning, world, params, partition))
        cohort = program.build(hyper).select(_policy_key(program, key), policy_state, view)
        ascending = jnp.argsort(jnp.where(cohort.members >= 0, cohort.members, program.num_clients))
        return jax.tree.map(lambda leaf: leaf[ascending], cohort), latency

    keys = jax.vmap(_round_key, (0, None))(world.seed, round)
    cohort, latency = jax.vmap(select)(keys, hyper, state.policy, state.params, world.partition)
    members, exists = cohort.members, cohort.members >= 0
    latency_reward = hyper["min_latency"][:, None] / latency

    if learning:
        params, optimizer, trained, finite = _learn(program, world, hyper, state, keys, cohort)
        loss, loss_rms = (x.reshape(members.shape) for x in (trained.loss, trained.loss_rms))
        updates = trained.updates.reshape(*members.shape, trained.updates.shape[-1])
        due = (round % program.eval_every == 0) | (round == last_round)
        unknown = jnp.full(members.shape[0], jnp.nan)
        accuracy, test_loss = jax.lax.cond(
            due,
            lambda params: evaluate(
                learning.model, learning.image_shape, world.test, params, learning.training.eval_lanes
            ),
            lambda _: (unknown, unknown),
            params,
        )
        diverged = jnp.where((state.diverged == 0) & ~finite, round, state.diverged)
    else:
        params, optimizer, diverged = state.params, state.optimizer, state.diverged
        loss = loss_rms = jnp.zeros(members.shape)
        updates = jnp.zeros((*members.shape, 0))
        accuracy = test_loss = jnp.full(members.shape[0], jnp.nan)

    def learn_from(
        hyper: Hyper,
        policy_state: Any,
        latency: jax.Array,
        params: Any,
        partition: jax.Array,
        feedback: Feedback,
    ) -> Any:
        view = View(round, latency, _local_loss(learning, world, params, partition))
        return program.build(hyper).update(policy_state, view, feedback)

    member_latency = jnp.take_along_axis(latency, jnp.maximum(members, 0), axis=1)
    member_reward = hyper["min_latency"][:, None] / member_latency
    seen = jax.vmap(bandit.update)(state.bandit, members, member_reward)
    feedback = Feedback(members, member_latency, member_reward, loss, loss_rms, updates)
    policy = jax.vmap(learn_from)(hyper, state.policy, latency, state.params, world.partition, feedback)

    score = functools.partial(
        score_round,
        round,
        clock=program.clock,
        clients_per_round=program.clients_per_round,
        selection_gap=program.selection_gap,
    )
    genie, scored, gap = jax.vmap(score)(
        hyper, mean_reward, latency_reward, world.data_share, state.bandit, state.genie, members
    )
    private = learning is None or learning.training.private
    leaked = jnp.max(
        privacy.leakage(seen.counts, hyper["privacy_budget"][:, None], hyper["budget_decay"][:, None]), axis=1
    )
    if not private:
        leaked = jnp.full_like(leaked, jnp.inf)
    clip = learning.training.clip if learning else "vector"
    record = Record(
        round_latency=jnp.max(jnp.where(exists, member_latency, 0.0), axis=1),
        **scored._asdict(),
        selection_gap=gap,
        max_leakage=leaked,
        max_leakage_update=privacy.update_leakage(leaked, learning.num_parameters if learning else 1, clip),
        train_loss=jnp.sum(jnp.where(exists, cohort.weights * loss, 0.0), axis=1)
        if learning
        else jnp.full(members.shape[0], jnp.nan),
        test_accuracy=accuracy,
        test_loss=test_loss,
        diverged_round=diverged,
        selected=members,
    )
    return State(seen, genie, policy, params, optimizer, diverged), record


def _learn(
    program: Program, world: World, hyper: Hyper, state: State, keys: jax.Array, cohort: Any
) -> tuple[Any, Any, Any, jax.Array]:
    """Local training, privacy and aggregation: the next global models of all runs, (2)."""
    learning, (runs, slots) = program.learning, cohort.members.shape
    assert learning is not None and world.data is not None
    run = jnp.repeat(jnp.arange(runs), slots)
    client = cohort.members.reshape(-1)

    def job_keys(run: jax.Array, client: jax.Array) -> jax.Array:
        return jax.random.split(jax.random.fold_in(jax.random.fold_in(keys[run], _CLIENT), client))

    batch_key, noise_key = jax.vmap(job_keys, out_axes=1)(run, jnp.maximum(client, 0))
    participation = state.bandit.counts[run, client] + 1
    jobs = Jobs(
        run=run,
        client=client,
        weight=cohort.weights.reshape(-1),
        batch_key=batch_key,
        noise_key=noise_key,
        epsilon=privacy.epsilon_at(participation, hyper["privacy_budget"][run], hyper["budget_decay"][run]),
    )
    rates = Rates(*(hyper[name] for name in Rates._fields))
    needs_updates = program.build(jax.tree.map(lambda leaf: leaf[0], hyper)).needs_updates
    trained = train(
        learning.training,
        learning.model,
        learning.image_shape,
        learning.longest,
        world.data,
        world.partition,
        state.params,
        state.optimizer,
        rates,
        jobs,
        keep_updates=needs_updates,
    )
    params = jax.tree.map(jnp.add, state.params, trained.update)
    finite = functools.reduce(
        jnp.logical_and,
        (jnp.all(jnp.isfinite(leaf.reshape(runs, -1)), axis=1) for leaf in jax.tree.leaves(params)),
    )
    return params, trained.optimizer, trained, finite


def _local_loss(
    learning: Learning | None, world: World, params: Any, partition: jax.Array | None
) -> Callable[[jax.Array], jax.Array]:
    if learning is None or world.data is None or partition is None:
        return lambda clients: jnp.zeros(clients.shape)
    return functools.partial(
        client_loss, learning.model, learning.image_shape, learning.longest, world.data, partition, params
    )
