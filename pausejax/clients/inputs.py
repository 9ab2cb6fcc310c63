"""Defines a group's static values, the input arrays of its runs, and the runs' state between rounds."""

import dataclasses
import zlib
from typing import Any, Literal, NamedTuple

import jax

from pausejax import bandit, network, privacy
from pausejax.federated.batches import EvaluationData, TrainingData
from pausejax.federated.learning import Learning
from pausejax.parts import Bound
from pausejax.policies.base import Policy
from pausejax.policies.check import checked

Hyper = dict[str, jax.Array]
"""Type of traced hyper-parameters by name, float32 [R] each."""
Files = dict[str, jax.Array]
FailureStage = Literal["before_release", "after_release"]
"""Time at which a client fails: before or after it releases its privatized update."""


Late = Literal["stopped", "released"]
"""Treatment of a late client: it stops before it releases its update, or it releases the update."""
RELEASE_LIMIT = "release limit"
"""Name of the hyper-parameter that holds the number of updates that `stop_at_epsilon` allows a client."""


@dataclasses.dataclass(frozen=True)
class StaticConfig:
    """Static values that the runs of a group share.

    A `StaticConfig` is a static argument of `loop.advance`, so JAX compiles a program for each distinct one.
    """

    policy: Bound
    law: Bound
    """Latency law."""
    availability: Bound
    ending: Bound
    """Part that decides when a round closes."""
    mechanism: Bound
    """Privacy mechanism, which protects updates and computes the leakage of a release."""
    num_clients: int
    clients_per_round: int
    clock: bandit.Clock
    rounds_per_call: int
    eval_every: int
    selection_gap: bool = False
    """Whether to compute the exact maximum of (14) and to record the gap of the cohort to it."""
    failure_stage: FailureStage | None = None
    """Time at which clients fail in a round; None if no client can fail."""
    waits_for_all: bool = True
    """Whether the slowest client of the cohort ends every round."""
    max_at_work: int = 0
    """Largest number of clients that may still be at work when a round closes, `Ending.waiting`."""
    slots: int = 0
    """Number of clients that policies select in a round; the ending sets it."""
    late: Late = "stopped"
    """Whether a late client is stopped or has released its update."""
    trusts_server: bool = False
    """Whether clients send updates without noise, so that only aggregated updates spend privacy."""
    limits_releases: bool = False
    """Whether clients without privacy budget are not available."""
    quantities: tuple[Bound, ...] = ()
    """Further quantities that are recorded."""
    learning: Learning | None = None
    """Static description of learning; None in mode "bandit"."""

    @property
    def failed_release_nothing(self) -> bool:
        """Whether clients that fail in a round release no update in it."""
        fails = self.failure_stage is not None
        return fails and (self.failure_stage == "before_release" or self.trusts_server)

    def build(self, hyper: Hyper, files: Files) -> Policy:
        """Builds the policy of one run, which is checked when it is traced."""
        built = self.policy.build(**hyper, **files)
        return checked(built, self.policy.part, self.num_clients)

    def build_law(self, hyper: Hyper, files: Files) -> network.Law:
        """Builds the latency law of one run; no latency is below the run's τ_min."""
        law = network.checked_law(self.law.build(**hyper, **files), self.law.part, self.num_clients)
        return network.floored(law, hyper["min_latency"])

    def build_availability(self, hyper: Hyper, files: Files) -> network.Availability:
        """Builds the availability process of one run."""
        built = self.availability.build(**hyper, **files)
        return network.checked_availability(built, self.availability.part, self.num_clients)

    def build_ending(self, hyper: Hyper, files: Files) -> network.Ending:
        """Builds the ending of one run's rounds."""
        return network.checked_ending(self.ending.build(**hyper, **files), self.ending.part)

    def build_mechanism(self, hyper: Any, files: Any) -> privacy.Mechanism:
        """Builds the privacy mechanism of one run. On the host, arrays of values give the mechanism of many
        runs."""
        return privacy.checked_mechanism(self.mechanism.build(**hyper, **files), self.mechanism.part)

    def objective(self, hyper: Hyper) -> bandit.Objective:
        """Returns the objective (14) from which the regrets of a run are computed."""
        numbers = [field.name for field in dataclasses.fields(bandit.Objective) if field.name != "clock"]
        return bandit.Objective(**{name: hyper[name] for name in numbers}, clock=self.clock)


class World(NamedTuple):
    """Input arrays of a group's runs.

    Arrays [R, ...] have a row for each run. All runs share the other arrays.
    """

    seed: jax.Array
    """uint32 [R], seed of each run."""
    data_share: jax.Array
    """float32 [R, K], |D_k| / |D|."""
    partition: jax.Array
    """int32 [R], index of each run's partition in `data`."""
    files: Files
    """Tables that parts read from files, by the name of the argument, float32 [rows, columns]."""
    data: TrainingData | None
    test: EvaluationData | None


class Slots(NamedTuple):
    """Clients at work, one in each slot, [s]."""

    client: jax.Array
    """int32, client in the slot; -1 for an empty slot."""
    remaining: jax.Array
    """float32, time from the start of a round to the client's delivery, seconds.

    This round is the one that is played. In a `State` it is the next round.
    """
    latency: jax.Array
    """float32, time from the start of the client's work to its delivery, seconds.

    `latency` exceeds `remaining` if the client began in an earlier round.
    """
    fails: jax.Array
    """bool, whether the client fails."""
    age: jax.Array
    """int32, number of server steps since the client was selected."""
    weight: jax.Array
    """float32, weight of the client in its cohort; if rounds overlap, times `Cohort.total`."""


class UnfinishedWork(NamedTuple):
    """Losses and updates of clients that are still at work after a round has closed.

    The arrays are [R, w], where w is `StaticConfig.max_at_work`.
    """

    slots: Slots
    loss: jax.Array
    """float32, mean training loss over the client's minibatches."""
    loss_rms: jax.Array
    """float32, root of the mean squared minibatch loss of the client."""
    update: jax.Array
    """float32 [R, w, d], update that the client will deliver; [R, w, 0] in mode "bandit"."""


class State(NamedTuple):
    """State of all runs between two rounds; leading axis [R]."""

    bandit: bandit.BanditState
    """Releases T_k and observed mean rewards μ̄_k, [R, K].

    The leakage of client k is computed from T_k. Both arrays are updated in the same way for every policy.
    """
    oracle: jax.Array
    """int32 [R, K], participations in the oracle's own trajectory."""
    mean_reward: jax.Array
    """float32 [R, K], μ, the expected rewards E[τ_min / τ], which the oracle knows. They never change.

    `bandit.mean_reward` has the observed means μ̄ instead. Neither field can be renamed: checkpoints store
    the names of fields, so a new name would make older checkpoints unusable.
    """
    work: UnfinishedWork | None
    """Work of clients that are still at work; None if the ending lets no client work past a round."""
    availability: Any
    """State of the availability process; () if all clients are always available."""
    policy: Any
    params: Any
    """Global models, `federated.modules.Weights`; None in mode "bandit"."""
    memory: Any
    """Other state of learning, `federated.learning.Memory`; None in mode "bandit"."""
    diverged: jax.Array
    """int32 [R], first round after which a run's model diverged; 0 if there is none."""


# All randomness derives from a run's seed. In a round, each purpose has a key of its own, so its draws never
# depend on another purpose.
LATENCY, POLICY, CLIENT, AVAILABILITY, FAILURE, SERVER_NOISE = range(6)


def initial_key(seed: jax.Array) -> jax.Array:
    return jax.random.fold_in(jax.random.key(seed), 0)


def round_key(seed: jax.Array, round: jax.Array) -> jax.Array:
    """Returns the key of one round, t >= 1, of one run."""
    return jax.random.fold_in(jax.random.key(seed), round)


def policy_key(config: StaticConfig, round_key: jax.Array) -> jax.Array:
    """Returns the key of the policy in a round; two policies have different keys."""
    purpose = zlib.crc32(config.policy.part.name.encode()) & 0x7FFFFFFF
    return jax.random.fold_in(jax.random.fold_in(round_key, POLICY), purpose)
