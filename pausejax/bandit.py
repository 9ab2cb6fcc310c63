"""The bandit of PAUSE: statistics of clients, and the scores computed from them, (7)-(9), (11)-(13).

The argument `round` is the time index of the paper's terms. In (14), terms of time t - 1 select the clients
of round t. Counts never include the round for which clients are selected.
"""

import dataclasses
from typing import Annotated, Literal, NamedTuple, TypeAlias, TypedDict, get_args

import chex
import jax
import jax.numpy as jnp

from pausejax.parts import Parameter
from pausejax.rounding import rounded

Clock = Literal["paper", "reference"]
CLOCKS: tuple[str, ...] = get_args(Clock)

Number: TypeAlias = jax.Array | float
"""Type of a hyper-parameter: a number, or a traced scalar."""


def _reward(symbol: str, alias: str, help: str, low: float = 0, low_open: bool = False) -> Parameter:
    return Parameter(help=help, section="reward", low=low, low_open=low_open, aliases=(alias,), symbol=symbol)


GeneralizationWeight = Annotated[
    Number, _reward("α", "alpha", "α, weight of generalization in the reward (9)")
]
GeneralizationExponent = Annotated[
    Number, _reward("β", "beta", "β, exponent of the generalization term (8)", 1, True)
]
TermsClock = Annotated[
    Clock,
    Parameter(
        help="time of the terms of (14) in round t: `paper`: t - 1; `reference`: t, as in the paper's code",
        section="reward",
    ),
]
"""Type of the parameter `clock`: the time of the terms that select the clients of round t."""


class Weights(TypedDict):
    """Weights α and γ of generalization and privacy, relative to latency."""

    generalization_weight: Number
    privacy_weight: Number


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Objective:
    """Holds the hyper-parameters of the objective (14): α, β, γ, ζ, η and the clock.

    The objective is a pytree. Its leaves are the five numbers; the clock is static.
    """

    generalization_weight: GeneralizationWeight = 100.0
    generalization_exponent: GeneralizationExponent = 2.0
    privacy_weight: Annotated[Number, _reward("γ", "gamma", "γ, weight of privacy in the reward (9)")] = 5.0
    exploitation_gain: Annotated[
        Number, _reward("ζ", "zeta", "ζ, factor of the mean reward in the index (13)", low_open=True)
    ] = 1.0
    budget_decay: Annotated[
        Number,
        Parameter(
            help="η, rate at which a client's releases spend its privacy budget",
            section="privacy",
            low=0,
            low_open=True,
            aliases=("eta",),
            symbol="η",
        ),
    ] = 0.04
    clock: TermsClock = dataclasses.field(default="paper", metadata={"static": True})

    @property
    def weights(self) -> Weights:
        """Weights α and γ, as keyword arguments of `score`, `set_reward` and the annealers."""
        return Weights(generalization_weight=self.generalization_weight, privacy_weight=self.privacy_weight)

    def check(self) -> None:
        """Checks the numbers and the clock; traced numbers are not checked.

        Raises:
          ValueError: a number is NaN or out of its parameter's range (for example β > 1, see (8)), or the
            clock is unknown.
        """
        for field in dataclasses.fields(self):
            number, bound = getattr(self, field.name), get_args(field.type)[1]
            if field.name == "clock" or isinstance(number, jax.core.Tracer):
                continue
            if not (number > bound.low if bound.low_open else number >= bound.low):
                allowed = f"> {bound.low}" if bound.low_open else f">= {bound.low}"
                raise ValueError(f"{field.name}: must be {allowed}, not {number}")
        check_clock(self.clock)


def check_clock(clock: str) -> None:
    """Checks that `clock` is "paper" (terms of round t - 1) or "reference" (terms of round t).

    Raises:
      ValueError: the clock is unknown.
    """
    if clock not in CLOCKS:
        raise ValueError(f"clock: must be one of {', '.join(CLOCKS)}, not {clock!r}")


class BanditState(NamedTuple):
    """Statistics of past rounds that (7), (8) and (13) need."""

    counts: jax.Array
    """int32 [K], T_k: the number of rounds in which the client has released an update.

    It is the variable `releases` of a result. The variable `counts` of a result counts selections instead.
    """
    mean_reward: jax.Array
    """float32 [K], μ̄_k: the mean of τ_min / τ over these rounds; 0 before the client's first round."""


def init(num_clients: int) -> BanditState:
    """Returns the state before the first round, in which no client has taken part."""
    return BanditState(jnp.zeros(num_clients, jnp.int32), jnp.zeros(num_clients, jnp.float32))


def update(state: BanditState, members: jax.Array, reward: jax.Array) -> BanditState:
    """Returns the state after the rewards of one round, (12).

    Args:
      state: the state before the round.
      members: int32 [n], distinct clients; -1 pads, and the rewards of pads are ignored.
      reward: float32 [n], τ_min / τ of the members.

    Raises:
      AssertionError: members and rewards differ in shape, members are not integers, or rewards are not floats
        (when traced).
    """
    chex.assert_equal_shape([members, reward])
    chex.assert_type([members, reward], [int, float])
    # A negative index would mean the last client. JAX drops an index past the end.
    slot = jnp.where(members >= 0, members, state.counts.shape[0])
    counts = state.counts.at[slot].add(1, mode="drop")
    old_mean = state.mean_reward[members]
    new_mean = old_mean + (reward - old_mean) / _float32(jnp.maximum(counts[members], 1))
    return BanditState(counts, state.mean_reward.at[slot].set(new_mean, mode="drop"))


def time_of_terms(round: jax.Array, clock: Clock = "paper") -> jax.Array:
    """Returns the time of the terms that select the clients of round t, in the shape of `round`.

    The time is t - 1 with the clock "paper", as in (14). It is t with "reference", as in the authors' code.

    Raises:
      ValueError: the clock is unknown.
    """
    check_clock(clock)
    return round - 1 if clock == "paper" else round


def ucb(
    mean_reward: jax.Array,
    counts: jax.Array,
    round: jax.Array,
    m: int,
    exploitation_gain: Number = 1.0,
) -> jax.Array:
    """Computes the upper confidence bounds ζ μ̄_k + sqrt((m + 1) log(t) / T_k), float32 [K], (13).

    Args:
      mean_reward: float32 [K], μ̄_k.
      counts: int32 [K], T_k. The bound of a client with T_k = 0 is +inf in every round.
      round: scalar, t >= 0; log(t) is replaced by 0 at t = 0.
      m: clients per round.
      exploitation_gain: ζ; the paper's (13) has 1.
    """
    log_round = jnp.log(jnp.maximum(_float32(round), 1))
    width = jnp.sqrt((m + 1) * log_round / _float32(jnp.maximum(counts, 1)))
    return jnp.where(counts > 0, rounded(exploitation_gain * mean_reward) + width, jnp.inf)


def generalization(
    counts: jax.Array, round: jax.Array, data_share: jax.Array, m: int, exponent: Number
) -> jax.Array:
    """Computes the generalization terms g_k = |x|^β sign(x), x = m |D_k| / |D| - T_k / t, float32 [K], (8).

    Args:
      counts: int32 [K], T_k.
      round: scalar, t >= 0; T_k / t is replaced by 0 at t = 0.
      data_share: float32 [K], |D_k| / |D|.
      m: clients per round.
      exponent: β > 0.
    """
    used = jnp.where(round > 0, _float32(counts) / jnp.maximum(_float32(round), 1), 0.0)
    lag = rounded(m * data_share) - used
    return jnp.abs(lag) ** exponent * jnp.sign(lag)


def privacy_reward(counts: jax.Array, budget_decay: Number) -> jax.Array:
    """Computes each client's remaining share of its privacy budget, p_k = e^(-η T_k), float32 [K], (7).

    With the budgets ε_i = ε̄ (e^η - 1) e^(-η i), the share is 1 - Σ_{i <= T_k} ε_i / ε̄. The share is 1 for a
    client that has not taken part in any round.
    """
    return jnp.exp(-budget_decay * _float32(counts))


def terms(
    counts: jax.Array, round: jax.Array, data_share: jax.Array, m: int, objective: Objective
) -> tuple[jax.Array, jax.Array]:
    """Computes the terms g_k, (8), and p_k, (7), float32 [K] each, with β and η of an objective.

    The other arguments are those of `generalization`.
    """
    return (
        generalization(counts, round, data_share, m, objective.generalization_exponent),
        privacy_reward(counts, objective.budget_decay),
    )


def score(
    generalization: jax.Array,
    privacy: jax.Array,
    m: int,
    *,
    generalization_weight: Number,
    privacy_weight: Number,
) -> jax.Array:
    """Computes (α g_k + γ p_k) / m, float32 [K]: each client's summand in (10) and (14).

    `generalization` is g and `privacy` is p, float32 [K] each; m is the number of clients per round.
    """
    weighted = rounded(generalization_weight * generalization) + rounded(privacy_weight * privacy)
    return weighted / m


def set_reward(
    latency_reward: jax.Array,
    generalization: jax.Array,
    privacy: jax.Array,
    members: jax.Array,
    *,
    generalization_weight: Number,
    privacy_weight: Number,
) -> jax.Array:
    """Computes the reward of a set of clients, min x_k + α mean g_k + γ mean p_k, float32 scalar.

    With x = τ_min / τ of the round's draws, the result is r(S, t), (9). With x = μ, it is C^G(S, t) of (10).
    With x = ucb, it is the objective of (14). The means are taken over the members of the set.

    Args:
      latency_reward: float32 [K], x.
      generalization: float32 [K], g.
      privacy: float32 [K], p.
      members: int32 [n], distinct clients; -1 pads. The reward of an empty set is 0.
      generalization_weight: α.
      privacy_weight: γ.
    """
    present = members >= 0
    size = _float32(jnp.maximum(jnp.sum(present), 1))
    slowest = jnp.min(jnp.where(present, latency_reward[members], jnp.inf))
    mean_g = jnp.sum(jnp.where(present, generalization[members], 0.0)) / size
    mean_p = jnp.sum(jnp.where(present, privacy[members], 0.0)) / size
    reward = slowest + rounded(generalization_weight * mean_g) + rounded(privacy_weight * mean_p)
    return jnp.where(present.any(), reward, 0.0)


def _float32(count: jax.Array) -> jax.Array:
    return jnp.asarray(count, jnp.float32)
