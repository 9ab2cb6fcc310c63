"""Draws neighbouring client sets uniformly without listing them (R1, R2, N1, N2 of the paper).

A neighbour of a set V differs from V by one swap: one outsider replaces one member. Which swaps count depends
on three lists of all clients, sorted by ucb, privacy and generalization. The sort is stable, so each list has
a strict order. Let A be the set of the first member in each list; A has one to three elements. Let U be the
set of the outsiders that come before every member in at least one list. Then

- any outsider may replace a member of A: the new set is an active neighbour (N1);
- only an outsider in U may replace another member: V is then an active neighbour of the new set, so the new
  set is a passive neighbour of V (N2a). N2b adds nothing to N1.

So V has |A| (K - m) + (m - |A|) |U| neighbours. All clients that a list has before its first member are
outsiders, so U is the union of three prefixes. A uniform draw from U takes O(m): draw from the concatenated
prefixes, and reject an outsider that is also in an earlier prefix.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from pausejax.rounding import rounded
from pausejax.selection._order import inverse_permutation, open_unit, scaled_bits, stable_argsort

PROPOSAL_WORDS = 3
"""The number of random uint32 words that one proposal needs."""


class Lists(NamedTuple):
    """Clients sorted by ucb, and by L further terms. A client's label is its place in the list of ucb.

    The first `size` places of every list are those of the available clients.
    """

    size: int | jax.Array
    """int32 scalar, n: the number of available clients; a Python int, K, if all clients are available."""
    client: jax.Array
    """int32 [K], the client that a label stands for."""
    order: jax.Array
    """int32 [L, K], labels in ascending order of each further list."""
    place: jax.Array
    """int32 [L, K], the place of each label in each further list."""


class Vertex(NamedTuple):
    """Set of m clients, as the ascending places of its members in every list."""

    labels: jax.Array
    """int32 [m], places in the list of ucb."""
    places: jax.Array
    """int32 [L, m], places in the further lists."""


class Proposal(NamedTuple):
    """Proposed swap of a member for an outsider. The valid proposals are uniform over the neighbours."""

    leaving: jax.Array
    """int32 scalar, the label of a member."""
    entering: jax.Array
    """int32 scalar, the label of an outsider."""
    valid: jax.Array
    """bool scalar; an invalid proposal must be drawn again."""


Propose = Callable[[Lists, Vertex, jax.Array], Proposal]


def make_lists(ucb: jax.Array, *others: jax.Array, available: jax.Array | None = None) -> Lists:
    """Sorts the clients by ucb and by every other term, float32 [K] each; ties go to the lowest client.

    Clients that are not `available`, bool [K], are at the end of every list.
    """
    num_clients = ucb.shape[0]
    size = num_clients if available is None else jnp.sum(available, dtype=jnp.int32)

    def ascending(values: jax.Array) -> jax.Array:
        order = stable_argsort(values)
        return order if available is None else _first_those(order, available[order])

    client = ascending(ucb)
    label = inverse_permutation(client)
    order = [label[ascending(values)] for values in others]
    none = jnp.zeros((0, num_clients), jnp.int32)
    place = [inverse_permutation(o) for o in order]
    return Lists(size, client, jnp.stack(order) if order else none, jnp.stack(place) if place else none)


def _first_those(order: jax.Array, chosen: jax.Array) -> jax.Array:
    """Returns `order`, int32 [n], with its `chosen` entries, bool [n], first; both parts keep their order."""
    number = jnp.where(chosen, jnp.cumsum(chosen), jnp.sum(chosen) + jnp.cumsum(~chosen)) - 1
    return jnp.zeros_like(order).at[number].set(order, unique_indices=True, mode="promise_in_bounds")


def make_vertex(lists: Lists, labels: jax.Array) -> Vertex:
    """Returns the set with the given labels, int32 [m], distinct and ascending."""
    return Vertex(labels, jnp.sort(lists.place[:, labels], axis=1))


def swap(lists: Lists, vertex: Vertex, leaving: jax.Array, entering: jax.Array) -> Vertex:
    """Returns the set in which the client `entering` replaces the member `leaving`."""
    places = _replace(vertex.places, lists.place[:, leaving, None], lists.place[:, entering, None])
    return Vertex(_replace(vertex.labels, leaving[None], entering[None]), places)


def propose_any(lists: Lists, vertex: Vertex, bits: jax.Array) -> Proposal:
    """Draws a swap of any member and any outsider, as Vanilla-SA does; `bits` is uint32 [PROPOSAL_WORDS]."""
    m = vertex.labels.shape[0]
    outsiders = jnp.int32(lists.size - m)
    leaving = vertex.labels[scaled_bits(bits[0], jnp.int32(m))]
    return Proposal(leaving, _outsider(vertex, scaled_bits(bits[1], outsiders)), jnp.bool_(True))


def propose_tailored(lists: Lists, vertex: Vertex, bits: jax.Array) -> Proposal:
    """Draws a swap that N1 or N2 allows, for three lists: the list of ucb and two further lists.

    `bits` is uint32 [PROPOSAL_WORDS]. A draw is valid with a probability of at least 1/3.
    """
    labels = vertex.labels
    m, num_clients = labels.shape[0], lists.client.shape[0]
    outsiders = jnp.int32(lists.size - m)
    firsts, num_firsts = _first_members(lists, vertex)
    prefix = jnp.stack([labels[0], vertex.places[0, 0], vertex.places[1, 0]])
    laid_out = jnp.sum(prefix)
    # If the three prefixes together are longer than the list of outsiders, draws from all outsiders are more
    # often valid.
    from_outsiders = laid_out >= outsiders
    candidates = jnp.minimum(laid_out, outsiders)

    num_others = m - num_firsts
    active_weight = rounded(num_firsts.astype(jnp.float32) * outsiders.astype(jnp.float32))
    passive_weight = rounded(num_others.astype(jnp.float32) * candidates.astype(jnp.float32))
    active = open_unit(bits[0]) * (active_weight + passive_weight) <= active_weight
    pick = scaled_bits(bits[1], jnp.where(active, num_firsts, num_others))
    other = pick + 1
    other += (other >= firsts[1]).astype(jnp.int32)
    other += (other >= firsts[2]).astype(jnp.int32)
    leaving = labels[jnp.where(active, firsts[pick], other)]

    drawn = scaled_bits(bits[2], jnp.where(active, outsiders, candidates))
    past_first, past_second = drawn >= prefix[0], drawn >= prefix[0] + prefix[1]
    offset = drawn - prefix[0] - jnp.where(past_second, prefix[1], 0)
    further = lists.order[past_second.astype(jnp.int32), jnp.clip(offset, 0, num_clients - 1)]
    listed = jnp.where(past_first, further, drawn)
    entering = jnp.where(active | from_outsiders, _outsider(vertex, drawn), listed)

    below_first = entering < prefix[0]
    below_second = lists.place[0, entering] < prefix[1]
    below_third = lists.place[1, entering] < prefix[2]
    repeated = (past_first & below_first) | (past_second & below_second)
    passive = jnp.where(from_outsiders, below_first | below_second | below_third, ~repeated)
    return Proposal(leaving, entering, active | passive)


def _first_members(lists: Lists, vertex: Vertex) -> tuple[jax.Array, jax.Array]:
    """Returns which members come first in a list, as positions in `vertex.labels`, int32 [3], and their
    number |A|.

    The positions are distinct and ascending, and the first is always 0. Missing positions at the end are m.
    """
    m = vertex.labels.shape[0]
    second = jnp.sum(vertex.labels < lists.order[0, vertex.places[0, 0]], dtype=jnp.int32)
    third = jnp.sum(vertex.labels < lists.order[1, vertex.places[1, 0]], dtype=jnp.int32)
    low, high = jnp.minimum(second, third), jnp.maximum(second, third)
    low_is_new, high_is_new = low > 0, high > low
    middle = jnp.where(low_is_new, low, jnp.where(high_is_new, high, m))
    last = jnp.where(low_is_new & high_is_new, high, m)
    firsts = jnp.stack([jnp.zeros_like(middle), middle, last])
    return firsts, 1 + low_is_new.astype(jnp.int32) + high_is_new.astype(jnp.int32)


def _outsider(vertex: Vertex, number: jax.Array) -> jax.Array:
    """Returns the label of the outsider with a given number.

    Outsiders are numbered from 0 in ascending order.
    """
    position = jnp.arange(vertex.labels.shape[0], dtype=jnp.int32)
    return number + jnp.sum(vertex.labels - position <= number, dtype=jnp.int32)


def _replace(ascending: jax.Array, old: jax.Array, new: jax.Array) -> jax.Array:
    """Returns an ascending array, int32 [..., m], with `old` replaced by `new`, [..., 1], again ascending."""
    end = jnp.full_like(ascending[..., :1], jnp.iinfo(jnp.int32).max)
    following = jnp.concatenate([ascending[..., 1:], end], axis=-1)
    without_old = jnp.where(ascending < old, ascending, following)
    preceding = jnp.concatenate([jnp.full_like(end, -1), without_old[..., :-1]], axis=-1)
    return jnp.maximum(preceding, jnp.minimum(without_old, new))
