"""Computes Ward's tree by chains of nearest neighbours, and a scheme of clustered sampling from the tree."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
from jax import lax

# Data shares are float32, so sums that should be equal may differ by about this number.
_ROUNDING = 1e-5
_UNITS = 2.0**20


class Tree(NamedTuple):
    """Tree of K - 1 merges in ascending distance. Leaves are nodes 0 .. K - 1; merge i makes node K + i."""

    left: jax.Array
    """int32 [K - 1], the smaller node of each merge."""
    right: jax.Array
    """int32 [K - 1], the larger node of each merge."""
    height: jax.Array
    """float32 [K - 1], the distance between the two nodes of each merge, ascending."""


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
    """Computes Ward's tree.

    The algorithm follows nearest neighbours until two clusters are each other's nearest, and merges the two.
    The algorithm takes at most 3 (K - 1) steps of O(K). Among equal distances it takes the lowest index, and
    equal heights keep the order of their merges, as in `scipy.cluster.hierarchy.linkage(..., "ward")`. The
    distances of clusters are float64, as in SciPy; with another rounding, other clusters would be tied.

    Args:
      distance: float32 [K, K], symmetric and finite; its diagonal is ignored.
    """
    chex.assert_shape(distance, (distance.shape[0], distance.shape[0]))
    with jax.enable_x64(True):
        tree = _ward(lax.convert_element_type(distance, jnp.float64))
        return tree._replace(height=lax.convert_element_type(tree.height, jnp.float32))


@jax.jit
def _ward(distance: jax.Array) -> Tree:
    # Functions such as argmin choose their types when they are lowered. Here they would use the caller's
    # 32-bit types.
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
        # Among equally near clusters, the previous cluster of the chain is preferred, so that no chain
        # cycles.
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
    """Merges clusters x and y; the merged cluster has the larger of the two indices."""
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
    """Returns weight * share * distance², rounded before it is added to anything."""
    product = weight * share * distance * distance
    return jnp.maximum(product, jnp.finfo(product.dtype).min)


def _labelled(first: jax.Array, second: jax.Array, height: jax.Array) -> Tree:
    """Returns the tree. Each cluster in it has the number of the node that the cluster's last merge made."""
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
    """Computes a scheme of clustered sampling whose rows keep clusters of similar clients together.

    The algorithm is Algorithm 2 of Fraboni, Vidal, Kameni and Lorenzi (2021). A client with m·p_k >= 1 has
    ⌊m·p_k⌋ rows of its own; the authors' code is biased for such clients. The remaining amounts of all
    clients are clustered by Ward's tree over the angles. The tree is cut where a cluster would exceed the
    capacity of a row. Each of the heaviest clusters gets one of the remaining rows. The clients of the other
    clusters fill the space left in these rows, in an order that differs from the authors' code.

    Args:
      angles: float32 [K, K], the angles between the clients' updates in radians, symmetric.
      data_share: float32 [K], p_k, each client's share of all data.
      m: the number of rows.

    Returns:
      The scheme, float32 [m, K]: each row sums to 1, and column k sums to m·p_k.
    """
    num_clients = data_share.shape[0]
    amount = m * data_share / jnp.sum(data_share)
    own_rows = jnp.floor(amount + _ROUNDING)
    amount = jnp.maximum(amount - own_rows, 0.0)
    cluster, place = _cut(ward(angles), amount) if num_clients > 1 else (jnp.zeros(1, jnp.int32),) * 2

    # Clusters are ranked by weight, heaviest first. Integer weights tie for equal clusters in any sum order.
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
    return without_rounding(scheme + kept + jnp.zeros_like(kept).at[:, order].set(jnp.maximum(poured, 0.0)))


def without_rounding(scheme: jax.Array) -> jax.Array:
    """Returns a scheme, float32 [m, K], whose entries are 0 where they may be errors of rounding alone.

    If such an entry stayed, a row of unavailable clients would draw the client of this entry.
    """
    # An entry is a difference of float32 sums of at most m. Their rounding errors are a few times m · eps.
    return jnp.where(scheme > 4 * scheme.shape[0] * jnp.finfo(jnp.float32).eps, scheme, 0.0)


def _cut(tree: Tree, amount: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Cuts a tree into the largest subtrees whose clients' amounts sum to at most 1.

    Returns:
      The root node of each client's subtree, int32 [K], and each client's place among the leaves from left to
      right, int32 [K].
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
