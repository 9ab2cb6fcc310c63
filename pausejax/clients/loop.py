"""The loop over rounds, for all runs of a group at once.

The runs of a group share one `StaticConfig`, which holds the static values. Another group may have an equal
`StaticConfig`, for example if only its data are partitioned in another way. `start` makes the state before
the first round. `advance` plays a fixed number of rounds of all runs. Both functions are pure and jitted.
JAX traces them once for each `StaticConfig` and set of array shapes, such as the number of rows.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from pausejax import bandit, network, regret
from pausejax.clients.inputs import (
    AVAILABILITY,
    Hyper,
    Slots,
    State,
    StaticConfig,
    UnfinishedWork,
    World,
    initial_key,
    policy_key,
)
from pausejax.clients.record import Record
from pausejax.clients.round import play_round
from pausejax.devices import AXIS, SHARED, SPLIT
from pausejax.federated.batches import TrainingData
from pausejax.federated.modules import Model
from pausejax.federated.server import init_memory, init_weights
from pausejax.policies.base import Clients


@functools.partial(jax.jit, static_argnums=0)
def initial_params(model: Model, seed: jax.Array) -> Any:
    """Returns the initial global models for seeds uint32 [R], pytree [R, ...]; no policy changes them."""
    return jax.vmap(lambda seed: model.init(initial_key(seed)))(seed)


@functools.partial(jax.jit, static_argnums=0)
def start(config: StaticConfig, world: World, hyper: Hyper, params: Any = None) -> State:
    """Returns all runs' state before round 1. In mode "training", `params` are the initial models, [R,
    ...]."""

    def init_policy(seed: jax.Array, data_share: jax.Array, hyper: Hyper) -> Any:
        clients = Clients(data_share, network.expected_latency(config.build_law(hyper, world.files)))
        return config.build(hyper, world.files).init(policy_key(config, initial_key(seed)), clients)

    def init_availability(seed: jax.Array, hyper: Hyper) -> Any:
        availability = config.build_availability(hyper, world.files)
        if availability.always:
            return ()
        return availability.init(jax.random.fold_in(initial_key(seed), AVAILABILITY))

    def expected_reward(hyper: Hyper) -> jax.Array:
        return network.expected_reward(config.build_law(hyper, world.files), hyper["min_latency"])

    runs = world.seed.shape[0]
    learning, memory = config.learning, None
    if learning:
        memory = init_memory(learning, params.params, hyper, world.files, config.num_clients)
        params = init_weights(learning, params, config.num_clients)
    return State(
        bandit=jax.vmap(lambda _: bandit.init(config.num_clients))(world.seed),
        work=_no_work(config, runs) if config.max_at_work else None,
        oracle=jax.vmap(lambda _: regret.init(config.num_clients))(world.seed),
        mean_reward=jax.vmap(expected_reward)(hyper),
        availability=jax.vmap(init_availability)(world.seed, hyper),
        policy=jax.vmap(init_policy)(world.seed, world.data_share, hyper),
        params=params,
        memory=memory,
        diverged=jnp.zeros(runs, jnp.int32),
    )


def _no_work(config: StaticConfig, runs: int) -> UnfinishedWork:
    """Returns empty slots for clients that are still at work, [R, max_at_work]."""
    shape = runs, config.max_at_work
    zeros, size = jnp.zeros(shape), config.learning.num_parameters if config.learning else 0
    slots = Slots(
        client=jnp.full(shape, -1, jnp.int32),
        remaining=zeros,
        latency=zeros,
        fails=jnp.zeros(shape, bool),
        age=jnp.zeros(shape, jnp.int32),
        weight=zeros,
    )
    return UnfinishedWork(slots, loss=zeros, loss_rms=zeros, update=jnp.zeros((*shape, size)))


def of_world(split: Any, shared: Any, *, sharded: bool = False) -> World:
    """Returns a `World` with `split` in place of each array [R, ...] and `shared` in place of all others.

    If the training inputs are sharded, `split` also replaces these inputs.
    """
    data = TrainingData(split, *[shared] * (len(TrainingData._fields) - 1)) if sharded else shared
    places: tuple[Any, ...] = (split, split, split, shared, data, shared)
    return World(*places)


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=4)
def advance(
    config: StaticConfig,
    mesh: Mesh,
    world: World,
    hyper: Hyper,
    state: State,
    first_round: jax.Array,
    last_round: jax.Array,
) -> tuple[State, Record]:
    """Plays rounds `first_round` .. `first_round + rounds_per_call - 1`, but none after `last_round`.

    Each device plays its own share of the runs. The devices communicate only if the training inputs are
    sharded; then they fetch samples from each other.

    Args:
      config: the group's static values, a static argument.
      mesh: the mesh of devices, from `devices.runs_mesh`, static; its size divides R.
      world: the input arrays of the group's runs.
      hyper: hyper-parameters by name, float32 [R] each.
      state: the state before the first round, donated.
      first_round: int32 scalar, t >= 1.
      last_round: int32 scalar; this round and every `eval_every`-th round are evaluated.

    Returns:
      The next state and the records, with leading axes [rounds_per_call, R]. Records after `last_round` have
      no meaning. Test results are NaN in rounds without an evaluation.
    """
    sharded = config.learning is not None and config.learning.sharded
    world_specs = of_world(SPLIT, SHARED, sharded=sharded)
    return jax.shard_map(
        functools.partial(_advance, config),
        mesh=mesh,
        in_specs=(world_specs, SPLIT, SPLIT, SHARED, SHARED),
        out_specs=(SPLIT, P(None, AXIS)),
        check_vma=False,
    )(world, hyper, state, first_round, last_round)


def _advance(
    config: StaticConfig,
    world: World,
    hyper: Hyper,
    state: State,
    first_round: jax.Array,
    last_round: jax.Array,
) -> tuple[State, Record]:
    """Plays the rounds of `advance` for the runs of one device.

    During the loop, arrays of the record with equal shape and type are stacked into one array.
    """
    first = jnp.broadcast_to(first_round, world.seed.shape)
    # The compiler of jax 0.11 crashes if a program that is split over devices reads an array without
    # elements. An example is the updates of a model without parameters. See
    # tests/clients/test_split_empty.py.
    state = jax.tree.map(lambda leaf: leaf if leaf.size else jnp.zeros(leaf.shape, leaf.dtype), state)

    # With `jit` the round is traced once, although it is called twice.
    played = jax.jit(functools.partial(play_round, config, world, hyper, last_round), inline=True)
    record = jax.eval_shape(played, state, first)[1]
    leaves, structure = jax.tree.flatten(record)
    alike = _alike(leaves)

    def step(ahead: jax.Array, carry: tuple[State, list[jax.Array]]) -> tuple[State, list[jax.Array]]:
        state, records = carry
        state, record = played(state, first + ahead)
        # Arrays of one shape are stacked and written together, because a device launches a kernel for each
        # write.
        pieces = _stacked(jax.tree.leaves(record), alike)
        return state, [all.at[ahead].set(piece) for all, piece in zip(records, pieces, strict=True)]

    empty = [
        jnp.zeros((config.rounds_per_call, len(places), *leaves[places[0]].shape), leaves[places[0]].dtype)
        for places in alike
    ]
    # A scan is as fast, but its length is fixed. A last call with fewer rounds would need a second program,
    # or a branch in every round that copies the state.
    left = jnp.clip(last_round + 1 - first[0], 0, config.rounds_per_call)
    with jax.named_scope("rounds"):
        state, records = jax.lax.fori_loop(0, left, step, (state, empty))
    return state, jax.tree.unflatten(structure, _unstacked(records, alike))


def _alike(leaves: Sequence[jax.ShapeDtypeStruct]) -> list[list[int]]:
    """Groups the leaves by shape and type. Returns a list of indices for each group."""
    kinds = sorted({(leaf.shape, str(leaf.dtype)) for leaf in leaves})
    return [[n for n, leaf in enumerate(leaves) if (leaf.shape, str(leaf.dtype)) == kind] for kind in kinds]


def _stacked(leaves: Sequence[jax.Array], alike: Sequence[Sequence[int]]) -> list[jax.Array]:
    """Returns one array for each list of indices in `alike`: the stacked leaves with these indices."""
    return [jnp.stack([leaves[n] for n in places]) for places in alike]


def _unstacked(records: Sequence[jax.Array], alike: Sequence[Sequence[int]]) -> list[jax.Array]:
    """Returns the leaves, [rounds, ...], in their first order; each record is [rounds, leaves, ...]."""
    found = {n: all[:, i] for places, all in zip(alike, records, strict=True) for i, n in enumerate(places)}
    return [found[n] for n in range(len(found))]
