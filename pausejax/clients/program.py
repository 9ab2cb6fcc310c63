"""What shapes a program of client selection, what its runs live in, and what a round leaves behind."""

import dataclasses
import zlib
from typing import Any, Literal, NamedTuple

import jax

from pausejax import bandit, network, privacy
from pausejax.federated.batches import HeldOut, TrainingData
from pausejax.federated.learning import Learning
from pausejax.parts import Bound
from pausejax.policies.base import Policy
from pausejax.policies.check import checked

Hyper = dict[str, jax.Array]
"""Traced hyper-parameters by name, float32 [R] each."""
Files = dict[str, jax.Array]
FailureStage = Literal["before_release", "after_release"]
"""Whether the privatized update has left a client when it fails."""


Late = Literal["stopped", "released"]
"""Whether a client that is too late is told to stop, or releases its update all the same."""
RELEASE_LIMIT = "release_limit"
"""The hyper-parameter that `stop_at_epsilon` becomes: how many updates a client may release."""


@dataclasses.dataclass(frozen=True)
class Program:
    """Everything that shapes the compiled program: one compilation each."""

    policy: Bound
    law: Bound
    """The law of latencies."""
    availability: Bound
    ending: Bound
    """When a round closes."""
    mechanism: Bound
    """What protects updates, and what a release costs."""
    num_clients: int
    clients_per_round: int
    clock: bandit.Clock
    rounds_per_call: int
    eval_every: int
    selection_gap: bool = False
    """Whether to search (14) exactly beside the policy, and record what its cohort falls short of."""
    failure_stage: FailureStage | None = None
    """When clients fail that fail in mid-round; None where nobody does."""
    waits_for_all: bool = True
    """Whether the slowest of the cohort ends every round."""
    waiting: int = 0
    """How many clients may still be at work when a round closes."""
    slots: int = 0
    """How many clients the ending lets policies select."""
    late: Late = "stopped"
    """Whether a late client has released its update."""
    trusts_server: bool = False
    """Whether updates reach the server unprotected, so that only what is aggregated spends privacy."""
    limits_releases: bool = False
    """Whether a client whose budget is spent is no longer available."""
    quantities: tuple[Bound, ...] = ()
    """What is recorded besides."""
    learning: Learning | None = None
    """None in mode "bandit"."""

    def build(self, hyper: Hyper, files: Files) -> Policy:
        """The policy of one run (or, under vmap, of each), checked when it is traced."""
        built = self.policy.build(**hyper, **files)
        return checked(built, self.policy.part, self.num_clients)

    def build_law(self, hyper: Hyper, files: Files) -> network.Law:
        """The latencies of one run (or, under vmap, of each), none below its τ_min."""
        law = network.checked_law(self.law.build(**hyper, **files), self.law.part, self.num_clients)
        return network.floored(law, hyper["min_latency"])

    def build_availability(self, hyper: Hyper, files: Files) -> network.Availability:
        """The availability process of one run (or, under vmap, of each)."""
        built = self.availability.build(**hyper, **files)
        return network.checked_availability(built, self.availability.part, self.num_clients)

    def build_ending(self, hyper: Hyper, files: Files) -> network.Ending:
        """The ending of one run's rounds (or, under vmap, of each run's)."""
        return network.checked_ending(self.ending.build(**hyper, **files), self.ending.part)

    def build_mechanism(self, hyper: Any, files: Any) -> privacy.Mechanism:
        """The mechanism of one run (or, under vmap, of each; or, on the host, of many)."""
        return privacy.checked_mechanism(self.mechanism.build(**hyper, **files), self.mechanism.part)

    def objective(self, hyper: Hyper) -> bandit.Objective:
        """Returns the objective (14) by which the regrets of a run (or, under vmap, of each) are computed."""
        numbers = [field.name for field in dataclasses.fields(bandit.Objective) if field.name != "clock"]
        return bandit.Objective(**{name: hyper[name] for name in numbers}, clock=self.clock)


class World(NamedTuple):
    """What the runs of a group live in; shared arrays, and one row per run where it says [R]."""

    seed: jax.Array
    """uint32 [R]."""
    data_share: jax.Array
    """float32 [R, K]."""
    partition: jax.Array
    """int32 [R], row of `data`'s partitions."""
    files: Files
    """What the parts read from files, by the name of the argument, float32 [rows, columns]."""
    data: TrainingData | None
    test: HeldOut | None


class HeldWork(NamedTuple):
    """The clients that are still at work when a round has closed, slot by slot, [R, waiting]."""

    client: jax.Array
    """int32; -1: nobody."""
    remaining: jax.Array
    """float32, s until it delivers."""
    latency: jax.Array
    """float32, s that it takes as a whole."""
    fails: jax.Array
    """bool."""
    age: jax.Array
    """int32, steps of the server since it was selected."""
    weight: jax.Array
    """float32, its weight in its cohort."""
    loss: jax.Array
    """float32, as `Feedback.loss`."""
    loss_rms: jax.Array
    """float32, as `Feedback.loss_rms`."""
    update: jax.Array
    """float32 [R, waiting, d], what it will deliver; [R, waiting, 0] in mode "bandit"."""


class State(NamedTuple):
    """All runs between two rounds; leading axis [R]."""

    bandit: bandit.BanditState
    """What the server has seen of its clients whatever its policy: participations T_k, the privacy ledger
    of every run, and mean rewards; [R, K]."""
    genie: jax.Array
    """int32 [R, K], the participations in the genie's own trajectory."""
    mean_reward: jax.Array
    """float32 [R, K], μ, the expected rewards. The genie (the oracle) knows them, and they never change."""
    work: "HeldWork | None"
    """Clients that are still at work; None unless the ending leaves some."""
    availability: Any
    """Of the availability process; () where everyone is always available."""
    policy: Any
    params: Any
    """The global models, `federated.modules.Weights`; None in mode "bandit"."""
    memory: Any
    """What learning remembers besides, `federated.learning.Memory`; None in mode "bandit"."""
    diverged: jax.Array
    """int32 [R], the round in which a run's model ceased to be finite; 0: never."""


# All randomness derives from a run's seed: what a purpose draws in a round never depends on another purpose.
LATENCY, POLICY, CLIENT, AVAILABILITY, FAILURE, SERVER_NOISE = range(6)


def initial_key(seed: jax.Array) -> jax.Array:
    return jax.random.fold_in(jax.random.key(seed), 0)


def round_key(seed: jax.Array, round: jax.Array) -> jax.Array:
    """The key of one round, t >= 1, of one run."""
    return jax.random.fold_in(jax.random.key(seed), round)


def policy_key(program: Program, round_key: jax.Array) -> jax.Array:
    """Differs between policies, so that two of them that draw do not draw alike."""
    purpose = zlib.crc32(program.policy.part.name.encode()) & 0x7FFFFFFF
    return jax.random.fold_in(jax.random.fold_in(round_key, POLICY), purpose)
