"""What the server learns of its clients and how it scores them: the bandit behind PAUSE, (7)-(9), (11)-(13).

`round` is the time that a term is written with in the paper: (14) decides round t by the terms of time t - 1.
Counts are always those before the round that is being decided.
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
"""A hyper-parameter: a number, or a traced scalar."""


def _reward(symbol: str, alias: str, help: str, low: float = 0, low_open: bool = False) -> Parameter:
    return Parameter(help=help, section="reward", low=low, low_open=low_open, aliases=(alias,), symbol=symbol)


GeneralizationWeight = Annotated[Number, _reward("α", "alpha", "α of (9)")]
GeneralizationExponent = Annotated[Number, _reward("β", "beta", "β of (8)", 1, True)]
TermsClock = Annotated[
    Clock, Parameter(help="terms of round t - 1, or t as the paper's code", section="reward")
]
"""The clock as a parameter of a study."""


class Weights(TypedDict):
    """What weighs generalization and privacy against latency."""

    generalization_weight: Number
    privacy_weight: Number


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Objective:
    """What a server maximizes, (14): the weights of its three terms, their shapes, and their time.

    A pytree whose leaves are the numbers; the clock is static.
    """

    generalization_weight: GeneralizationWeight = 100.0
    generalization_exponent: GeneralizationExponent = 2.0
    privacy_weight: Annotated[Number, _reward("γ", "gamma", "γ of (9)")] = 5.0
    exploitation_gain: Annotated[
        Number, _reward("ζ", "zeta", "ζ, multiplies the mean in (13)", low_open=True)
    ] = 1.0
    budget_decay: Annotated[
        Number,
        Parameter(
            help="η, how fast the budget is spent",
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
        """α and γ, as `score`, `set_reward` and the annealers take them."""
        return Weights(generalization_weight=self.generalization_weight, privacy_weight=self.privacy_weight)

    def check(self) -> None:
        """Refuses what can't be an objective; traced numbers pass.

        Raises:
          ValueError: a number is NaN or out of its parameter's range (β > 1, as (8) has it), or the clock is
            unknown.
        """
        for field in dataclasses.fields(self):
            number, bound = getattr(self, field.name), get_args(field.type)[1]
            if field.name == "clock" or isinstance(number, jax.core.Tracer):
                continue
            if not (number > bound.low if bound.low_open else number >= bound.low):
                allowed = f"more than {bound.low}" if bound.low_open else f"{bound.low} or more"
                raise ValueError(f"{field.name}: {number}; allowed: {allowed}")
        check_clock(self.clock)


def check_clock(clock: str) -> None:
    """Refuses an unknown clock.

    Raises:
      ValueError: it is unknown.
    """
    if clock not in CLOCKS:
        raise ValueError(f"clock: unknown clock {clock!r}; allowed: {', '.join(CLOCKS)}")


class BanditState(NamedTuple):
    """Everything that (7), (8) and (13) need to know of the past."""

    counts: jax.Array
    """int32 [K], T_k: how many rounds the client has taken part in."""
    mean_reward: jax.Array
    """float32 [K], μ̄_k: the mean of τ_min / τ over those rounds; 0 before the first."""


def init(num_clients: int) -> BanditState:
    """The state before the first round: nobody has been seen."""
    return BanditState(jnp.zeros(num_clients, jnp.int32), jnp.zeros(num_clients, jnp.float32))


def update(state: BanditState, members: jax.Array, reward: jax.Array) -> BanditState:
    """Takes in the rewards of one round, (12).

    Args:
      members: int32 [n], distinct clients; -1 pads, whose rewards are ignored.
      reward: float32 [n], τ_min / τ of the members.

    Raises:
      AssertionError: members and rewards differ in shape, or are no integers and floats (when traced).
    """
    chex.assert_equal_shape([members, reward])
    chex.assert_type([members, reward], [int, float])
    # A negative index would wrap round to the last client; one past the end is dropped.
    slot = jnp.where(members >= 0, members, state.counts.shape[0])
    counts = state.counts.at[slot].add(1, mode="drop")
    old_mean = state.mean_reward[members]
    new_mean = old_mean + (reward - old_mean) / _float32(jnp.maximum(counts[members], 1))
    return BanditState(counts, state.mean_reward.at[slot].set(new_mean, mode="drop"))


def time_of_terms(round: jax.Array, clock: Clock = "paper") -> jax.Array:
    """The time whose terms choose the clients of round t: t - 1 as in (14), or t as the authors' code has it.

    Raises:
      ValueError: for an unknown clock.
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
    """Upper confidence bounds ζ μ̄_k + sqrt((m + 1) log(t) / T_k), float32 [K], (13).

    Args:
      mean_reward: float32 [K], μ̄_k.
      counts: int32 [K], T_k. A client never seen (T_k = 0) has +inf, whatever the round.
      round: scalar, t >= 0; log(t) is taken as 0 at t = 0.
      m: clients per round.
      exploitation_gain: ζ; the paper's (13) has 1.
    """
    log_round = jnp.log(_float32(jnp.maximum(round, 1)))
    width = jnp.sqrt((m + 1) * log_round / _float32(jnp.maximum(counts, 1)))
    return jnp.where(counts > 0, rounded(exploitation_gain * mean_reward) + width, jnp.inf)


def generalization(
    counts: jax.Array, round: jax.Array, data_share: jax.Array, m: int, exponent: Number
) -> jax.Array:
    """Generalization terms g_k = |x|^β sign(x) with x = m |D_k| / |D| - T_k / t, float32 [K], (8).

    Args:
      counts: int32 [K], T_k.
      round: scalar, t >= 0; T_k / t is taken as 0 at t = 0.
      data_share: float32 [K], |D_k| / |D|.
      m: clients per round.
      exponent: β > 0.
    """
    used = jnp.where(round > 0, counts / jnp.maximum(round, 1), 0.0)
    lag = rounded(m * data_share) - used
    return jnp.abs(lag) ** exponent * jnp.sign(lag)


def privacy_reward(counts: jax.Array, budget_decay: Number) -> jax.Array:
    """The share of its privacy budget that each client has left, p_k = e^(-η T_k), float32 [K], (7).

    With the budgets ε_i = ε̄ (e^η - 1) e^(-η i) this is 1 - Σ_{i <= T_k} ε_i / ε̄; 1 for a client never seen.
    """
    return jnp.exp(-budget_decay * _float32(counts))


def terms(
    counts: jax.Array, round: jax.Array, data_share: jax.Array, m: int, objective: Objective
) -> tuple[jax.Array, jax.Array]:
    """g and p of an objective, float32 [K] each; arguments as for `generalization`, (8), and (7)."""
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
    """What one client adds to the sums of (14) and (10): (α g_k + γ p_k) / m, float32 [K]."""
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
    """The reward of a set of clients, min x_k + α mean g_k + γ mean p_k, float32 scalar.

    With x = τ_min / τ of the round's draws this is r(S, t), (9); with x = μ it is C^G(S, t) of (10); with
    x = ucb it is the objective of (14). The means are over the set's own members, however many they are.

    Args:
      latency_reward: float32 [K], x.
      generalization: float32 [K], g.
      privacy: float32 [K], p.
      members: int32 [n], distinct clients; -1 pads. The reward of nobody is 0.
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
