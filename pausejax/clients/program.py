"""What shapes a program of client selection, what its runs live in, and what a round leaves behind."""

import dataclasses
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from pausejax import bandit, network
from pausejax.federated.batches import HeldOut, TrainingData
from pausejax.federated.learning import Learning
from pausejax.policies.base import Policy

Hyper = dict[str, jax.Array]
"""Traced hyper-parameters by name, float32 [R] each."""


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
    """The global models, `federated.modules.Weights`; None in mode "bandit"."""
    optimizer: Any
    """What learning remembers besides, `federated.learning.Memory`; None in mode "bandit"."""
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
LATENCY, POLICY, CLIENT = range(3)


def initial_key(seed: jax.Array) -> jax.Array:
    return jax.random.fold_in(jax.random.key(seed), 0)


def round_key(seed: jax.Array, round: jax.Array) -> jax.Array:
    """The key of one round, t >= 1, of one run."""
    return jax.random.fold_in(jax.random.key(seed), round)


def policy_key(program: Program, round_key: jax.Array) -> jax.Array:
    """Differs between policies, so that two of them that draw do not draw alike."""
    purpose = zlib.crc32(program.policy.encode()) & 0x7FFFFFFF
    return jax.random.fold_in(jax.random.fold_in(round_key, POLICY), purpose)


def network_of(program: Program, hyper: Hyper, trace: jax.Array) -> network.Network:
    names = ("min_latency", "fast_latency", "slow_latency", "slow_range", "latency_deviation")
    return network.make_network(
        program.num_clients,
        **{name: hyper[name] for name in names},
        trace=trace if program.latency == "trace" else None,
    )
