"""Ward's linkage by chains of nearest neighbours, and rows of clients cut from its tree; all of it traced."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
from jax import lax

# Data shares arrive in float32: sums of them that mean the same number differ by about this much.
_ROUNDING = 1e-5
_UNITS = 2.0**20


class Tree(NamedTuple):
    """K - 1 merges, the nearest first. Leaves are nodes 0 .. K - 1, merge i makes node K + i."""

    left: jax.Array
    """int32 [K - 1], the smaller node of each merge."""
    right: jax.Array
    """int32 [K - 1]."""
    height: jax.Array
    """float32 [K - 1], the distance of the two, ascending."""


class _Chain(NamedTuple):
    distance: jax.Array
    size: jax.Array
    chain: jax.Array
    length: jax.Array
    merges: jax.Array
    first: jax.Array
    second: jax.Array
    height: jax.Array


def ward(distance: jax.Array) -> Tree:
    """Ward's tree over a matrix of distances, float32 [K, K], symmetric and finite; its diagonal is not read.

    Follows nearest neighbours until two are each other's, and merges them: at most 3 (K - 1) steps of O(K).
    Among equal distances the lowest index is taken, and equal heights keep the order of their merges, which
    is what `scipy.cluster.hierarchy.linkage(..., "ward")` does. Distances of clusters are float64
    inside, as SciPy's are: rounded otherwise, other ties would break.
    """
    chex.assert_shape(distance, (distance.shape[0], distance.shape[0]))
    with jax.enable_x64(True):
        tree = _ward(lax.convert_element_type(distance, jnp.float64))
        return tree._replace(height=lax.convert_element_type(tree.height, jnp.float32))


@jax.jit
def _ward(distance: jax.Array) -> Tree:
    # Whatever picks its own types when it is lowered, argmin for one, would pick those of the caller.
    num_leaves = distance.shape[0]
    index = jnp.arange(num_leaves, dtype=jnp.int32)
    no_merge = jnp.zeros(num_leaves - 1, jnp.int32)
    start = _Chain(
        jnp.where(index[:, None] == index[None], jnp.inf, distance),
        jnp.ones(num_leaves, jnp.int32),
        jnp.zeros(num_leaves, jnp.int32),
        jnp.int32(0),
        jnp.int32(0),
        no_merge,
        no_merge,
        jnp.zeros(num_leaves - 1, distance.dtype),
    )

    def first_of(chosen: jax.Array) -> jax.Array:
        return jnp.min(jnp.where(chosen, index, num_leaves - 1))

    def step(state: _Chain) -> _Chain:
        begun = state.length > 0
        alive = state.size > 0
        length = jnp.where(begun, state.length, 1)
        chain = state.chain.at[0].set(jnp.where(begun, state.chain[0], first_of(alive)))
        x = chain[length - 1]
        to = jnp.where(alive, state.distance[x], jnp.inf)
        previous = chain[jnp.maximum(length - 2, 0)]
        # The one before in the chain is preferred, so that no chain goes in circles.
        nearest = first_of(to == jnp.min(to))
        back = (length > 1) & (to[previous] <= to[nearest])
        y = jnp.where(back, previous, nearest)
        extended = state._replace(chain=chain.at[length].set(y, mode="drop"), length=length + 1)
        merged = _merge(state._replace(chain=chain, length=length - 2), x, y)
        return jax.tree.map(lambda a, b: jnp.where(back, a, b), merged, extended)

    done = lax.while_loop(lambda state: state.merges < num_leaves - 1, step, start)
    order = jnp.argsort(done.height, stable=True)
    return _labelled(done.first[order], done.second[order], done.height[order])


def _merge(state: _Chain, x: jax.Array, y: jax.Array) -> _Chain:
    """Puts clusters x and y together, in the place of the larger index."""
    x, y = jnp.minimum(x, y), jnp.maximum(x, y)
    kind = state.distance.dtype
    size, height = state.size, state.distance[x, y]
    share = 1 / (size[x] + size[y] + size).astype(kind)
    terms = (
        _times((size + size[x]).astype(kind), share, state.distance[x]),
        _times((size + size[y]).astype(kind), share, state.distance[y]),
        _times(size.astype(kind), share, height),
    )
    index = jnp.arange(size.shape[0], dtype=jnp.int32)
    others = (size > 0) & (index != x) & (index != y)
    to = jnp.where(others, jnp.sqrt(jnp.maximum(terms[0] + terms[1] - terms[2], 0)), jnp.inf)
    return _Chain(
        state.distance.at[y].set(to).at[:, y].set(to),
        size.at[y].add(size[x]).at[x].set(0),
        state.chain,
        state.length,
        state.merges + 1,
        state.first.at[state.merges].set(x),
        state.second.at[state.merges].set(y),
        state.height.at[state.merges].set(height),
    )


def _times(weight: jax.Array, share: jax.Array, distance: jax.Array) -> jax.Array:
    """weight * share * distance², rounded before it is added to anything, see `rounding.rounded`."""
    product = weight * share * distance * distance
    return jnp.maximum(product, jnp.finfo(product.dtype).min)


def _labelled(first: jax.Array, second: jax.Array, height: jax.Array) -> Tree:
    """Names every cluster by the node that its last merge made."""
    num_leaves = first.shape[0] + 1

    def label(node: jax.Array, merge: tuple) -> tuple[jax.Array, tuple]:
        number, x, y = merge
        joined = (node == node[x]) | (node == node[y])
        left, right = jnp.minimum(node[x], node[y]), jnp.maximum(node[x], node[y])
        return jnp.where(joined, num_leaves + number, node), (left, right)

    numbers = jnp.arange(num_leaves - 1, dtype=jnp.int32)
    leaves = jnp.arange(num_leaves, dtype=jnp.int32)
    _, (left, right) = lax.scan(label, leaves, (numbers, first, second))
    return Tree(left, right, height)


def similarity_scheme(angles: jax.Array, data_share: jax.Array, m: int) -> jax.Array:
    """Keeps clusters of similar clients together in the rows of a scheme of clustered sampling.

    Algorithm 2 of Fraboni, Vidal, Kameni and Lorenzi (2021). A client with m·p_k >= 1 has ⌊m·p_k⌋ rows for
    itself; the authors' code is biased there. The rest goes into Ward's tree over the angles, cut where a
    cluster would exceed the capacity of a row. The heaviest clusters are the rows that are left; the clients
    of the others are poured into the space that remains, in another order than in the authors' code.

    Args:
      angles: float32 [K, K], symmetric, radians.
      data_share: float32 [K], p.
      m: rows.

    Returns:
      float32 [m, K]: rows sum to 1, columns to m·p_k.
    """
    num_clients = data_share.shape[0]
    amount = m * data_share / jnp.sum(data_share)
    own_rows = jnp.floor(amount + _ROUNDING)
    amount = jnp.maximum(amount - own_rows, 0.0)
    cluster, place = _cut(ward(angles), amount) if num_clients > 1 else (jnp.zeros(1, jnp.int32),) * 2

    # Heaviest clusters first. Integers, so that clusters of equal clients tie whatever the order of the sum.
    units = jnp.round(amount * _UNITS).astype(jnp.int32)
    together = cluster[:, None] == cluster[None]
    weight = jnp.sum(jnp.where(together, units[None], 0), axis=1)
    is_first = ~jnp.any(together & (jnp.arange(num_clients)[None] < jnp.arange(num_clients)[:, None]), axis=1)
    tied = (weight[None] == weight[:, None]) & (cluster[None] < cluster[:, None])
    before = is_first[None] & ((weight[None] > weight[:, None]) | tied)
    rank = jnp.sum(before, axis=1, dtype=jnp.int32)

    row = jnp.arange(m, dtype=jnp.int32)[:, None]
    own_end = jnp.cumsum(own_rows).astype(jnp.int32)
    scheme = ((row < own_end[None]) & (row >= (own_end - own_rows.astype(jnp.int32))[None])).astype(
        jnp.float32
    )
    shared = row - own_end[-1]
    kept = jnp.where((shared >= 0) & (rank[None] == shared), amount[None], 0.0)
    room = jnp.where(shared[:, 0] >= 0, jnp.maximum(1 - jnp.sum(kept, axis=1), 0.0), 0.0)
    by_place = jnp.argsort(place, stable=True)
    order = by_place[jnp.argsort(rank[by_place], stable=True)]
    left = jnp.where(rank < m - own_end[-1], 0.0, amount)[order]
    end, filled = jnp.cumsum(left)[None], jnp.cumsum(room)[:, None]
    poured = jnp.minimum(end, filled) - jnp.maximum(end - left[None], filled - room[:, None])
    return scheme + kept + jnp.zeros_like(kept).at[:, order].set(jnp.maximum(poured, 0.0))


def _cut(tree: Tree, amount: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The largest subtrees whose clients' amounts sum to at most 1: each client's, and its place in the tree.

    Returns:
      int32 [K], the root node of the client's subtree.
      int32 [K], the client's place among the leaves from left to right.
    """
    num_leaves = amount.shape[0]
    nodes = num_leaves + jnp.arange(num_leaves - 1, dtype=jnp.int32)
    merges = (nodes, tree.left, tree.right)

    def add_up(carry: tuple, merge: tuple) -> tuple:
        weight, size = carry
        node, left, right = merge
        weight = weight.at[node].set(weight[left] + weight[right])
        return (weight, size.at[node].set(size[left] + size[right])), None

    def hand_down(carry: tuple, merge: tuple) -> tuple:
        root, place = carry
        node, left, right = merge
        whole = weight[node] <= 1 + _ROUNDING
        root = root.at[left].set(jnp.where(whole, root[node], left))
        root = root.at[right].set(jnp.where(whole, root[node], right))
        return (root, place.at[left].set(place[node]).at[right].set(place[node] + size[left])), None

    labels = jnp.arange(2 * num_leaves - 1, dtype=jnp.int32)
    start = (jnp.pad(amount, (0, num_leaves - 1)), jnp.ones_like(labels))
    (weight, size), _ = lax.scan(add_up, start, merges)
    (root, place), _ = lax.scan(hand_down, (labels, jnp.zeros_like(labels)), merges, reverse=True)
    return root[:num_leaves], place[:num_leaves]
