"""Federated algorithms against loops in float64 NumPy that share nothing with the package but its draws."""

import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen

import pausejax
from pausejax import data, parts
from pausejax.clients import loop as simulation
from pausejax.clients.simulation import ClientSimulation
from pausejax.data.host import DataCache
from pausejax.devices import runs_mesh
from pausejax.federated.algorithms import Algorithm, fedper
from pausejax.kinds import parse
from pausejax.study.plan import make_plan
from pausejax.study.spec import SpecError

K, M, ROUNDS, SAMPLES, HIDDEN = 5, 3, 30, 150, 6
RATE, BATCH = 0.1, 8
SPEC = {
    "seeds": [4, 9],
    "rounds": ROUNDS,
    "eval_every": ROUNDS,
    "network": {"num_clients": K, "clients_per_round": M, "failure_probability": 0.25},
    "data": {"partition": "dirichlet_quantity", "train_samples": SAMPLES},
    "privacy": {"private": False},
    "policy": [{"name": "random"}],
}
TRAINING = {
    "model": "two_layers",
    "optimizer": "sgd",
    "learning_rate": RATE,
    "batch_size": BATCH,
    "local_epochs": 2,
    "max_steps": 12,
}
OWN = {
    "fedavg": {},
    "fedprox": {"proximal_weight": 0.7},
    "scaffold": {},
    "feddyn": {"dynamic_weight": 0.3},
    "fedper": {},
    "fednova": {},
}


@pytest.fixture(autouse=True)
def _parts(own_parts):
    """A model of two linear layers, and the example's algorithm."""

    @parts.model
    def two_layers(*, input_shape: tuple, num_outputs: int):
        size = int(np.prod(input_shape))

        def init(key):
            first, last = jax.random.split(key)
            return {
                "layer_1": jax.random.normal(first, (size, HIDDEN)) * size**-0.5,
                "layer_2": jax.random.normal(last, (HIDDEN, num_outputs)) * HIDDEN**-0.5,
            }

        def apply(params, inputs):
            return inputs.reshape(len(inputs), -1) @ params["layer_1"] @ params["layer_2"]

        return init, apply

    file = Path(__file__).parents[2] / "examples" / "fednova.py"
    spec = importlib.util.spec_from_file_location("fednova", file)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


def simulation_of(training, **changes):
    plan = make_plan(parse(SPEC | {"training": TRAINING | training} | changes))
    return ClientSimulation(plan.study, plan.groups[0], DataCache()), plan.groups[0].runs


def play(name, training=None, **changes):
    """Plays a study: the models before it, the final state and the records."""
    given = OWN[name] | {"federated_algorithm": name} if training is None else training
    made, runs = simulation_of(given, **changes)
    world, hyper = made.arguments(runs)
    first = simulation.initial_params(made.config.learning.model, world.seed).params
    mesh, state, records = runs_mesh(len(runs)), made.start(runs), []
    rounds, last = made.rounds_per_call, made.rounds
    for start in range(1, last + 1, rounds):
        state, record = simulation.advance(
            made.config, mesh, world, hyper, state, jnp.int32(start), jnp.int32(last)
        )
        records.append(jax.tree.map(lambda leaf, n=last + 1 - start: np.asarray(leaf)[:n], record))
    record = jax.tree.map(lambda *leaves: np.concatenate(leaves), *records)
    return jax.tree.map(np.asarray, (first, state)), record


class Network:
    """The clients of one seed and their softmax regression through two linear layers."""

    def __init__(self, seed):
        source = data.load("digits")
        mean, std = source.scale
        flat = source.train_inputs[:SAMPLES].reshape(SAMPLES, -1)
        self.inputs, self.labels = (flat - mean) / std, source.train_targets[:SAMPLES]
        shares = data.partition.split("dirichlet_quantity", self.labels, K, seed, batch_size=BATCH)
        self.owned = [shares.order[o : o + s] for o, s in zip(shares.offsets, shares.sizes, strict=True)]
        self.share = shares.sizes / shares.sizes.sum()
        self.key = jax.random.key(seed)

    def gradient(self, params, batch):
        first, last = params["layer_1"], params["layer_2"]
        x = self.inputs[batch]
        logits = x @ first @ last
        chance = np.exp(logits - logits.max(axis=1, keepdims=True))
        error = chance / chance.sum(axis=1, keepdims=True)
        error[np.arange(len(batch)), self.labels[batch]] -= 1
        error /= len(batch)
        return {"layer_1": x.T @ error @ last.T, "layer_2": (x @ first).T @ error}

    def batches(self, client, round):
        key = jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(self.key, round), 2), client)
        batch_key, mine = jax.random.split(key)[0], self.owned[client]
        found = []
        for epoch in range(TRAINING["local_epochs"]):
            draw = np.asarray(jax.random.uniform(jax.random.fold_in(batch_key, epoch), (len(mine),)))
            order = mine[np.argsort(draw)]
            found += [order[i : i + BATCH] for i in range(0, len(mine), BATCH)]
        return found[: TRAINING["max_steps"]]


def each(function, *trees):
    return {name: function(*(tree[name] for tree in trees)) for name in trees[0]}


def loop(network, name, start, cohorts):
    """The algorithm as its paper has it, with data shares; the last model and what clients keep."""
    w = each(lambda leaf: leaf.astype(np.float64), start)
    zero = each(np.zeros_like, w)
    c, h = zero, zero
    own = [w["layer_2"] if name == "fedper" else zero for _ in range(K)]
    for round, members in enumerate(cohorts, 1):
        if len(members) == 0:
            continue
        p = network.share[members] / network.share[members].sum()
        changes, controls, steps = [], [], []
        for k in members:
            x = begin = each(np.copy, w) | ({"layer_2": own[k]} if name == "fedper" else {})
            batches = network.batches(k, round)
            for batch in batches:
                g = network.gradient(x, batch)
                if name == "fedprox":
                    g = each(lambda g, x, w: g + 0.7 * (x - w), g, x, w)
                if name == "scaffold":
                    g = each(lambda g, own, c: g - own + c, g, own[k], c)
                if name == "feddyn":
                    g = each(lambda g, own, x, w: g - own + 0.3 * (x - w), g, own[k], x, w)
                x = each(lambda x, g: x - RATE * g, x, g)
            change = each(np.subtract, x, begin)
            if name == "scaffold":
                path = len(batches) * RATE
                after = each(lambda own, c, u, path=path: own - c - u / path, own[k], c, change)
                controls.append(each(np.subtract, after, own[k]))
                own[k] = after
            if name == "feddyn":
                own[k] = each(lambda own, u: own - 0.3 * u, own[k], change)
            if name == "fedper":
                own[k], change = x["layer_2"], change | {"layer_2": np.zeros_like(x["layer_2"])}
            changes.append(change)
            steps.append(len(batches))
        if name == "fednova":
            tau = (p * steps).sum()
            changes = [
                each(lambda u, n=n: tau * u / n, change) for change, n in zip(changes, steps, strict=True)
            ]
        mean = each(lambda *u, p=p: np.tensordot(p, np.stack(u), 1), *changes)
        share = network.share[members]
        if name == "scaffold":
            step = each(lambda *u, s=share: np.tensordot(s, np.stack(u), 1), *controls)
            c = each(np.add, c, step)
        if name == "feddyn":
            h = each(lambda h, *u, s=share: h - 0.3 * np.tensordot(s, np.stack(u), 1), h, *changes)
            mean = each(lambda u, h: u - h / 0.3, mean, h)
        w = each(np.add, w, mean)
    return w, own, c


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN)
def test_algorithms_are_their_papers(name):
    """30 rounds of unequal clients, three of five at a time, a quarter of whom fail."""
    (first, state), record = play(name)
    lost = 0
    for run, seed in enumerate(SPEC["seeds"]):
        network = Network(seed)
        released = record.released[:, run]
        cohorts = [row[row >= 0] for row in released]
        lost += sum(len(members) < M for members in cohorts)
        w, own, c = loop(network, name, jax.tree.map(lambda leaf, r=run: leaf[r], first), cohorts)
        for layer, value in w.items():
            np.testing.assert_allclose(state.params.params[layer][run], value, rtol=2e-4, atol=2e-5)
        kept = state.memory.clients.algorithm
        if name == "fedper":
            np.testing.assert_allclose(kept["layer_2"][run], np.stack(own), rtol=2e-4, atol=2e-5)
        if name in ("scaffold", "feddyn"):
            for layer in w:
                expected = np.stack([one[layer] for one in own])
                np.testing.assert_allclose(kept[layer][run], expected, rtol=2e-3, atol=2e-5)
        if name == "scaffold":
            server = state.memory.server.algorithm
            for layer in w:
                np.testing.assert_allclose(server[layer][run], c[layer], rtol=2e-3, atol=2e-5)
                weighted = np.tensordot(network.share, kept[layer][run], 1)
                np.testing.assert_allclose(server[layer][run], weighted, rtol=1e-3, atol=1e-5)
    assert lost > 5


@pytest.mark.slow
@pytest.mark.parametrize("concurrency", [4, 5])
def test_buffered_updates_start_from_the_model_of_their_round(concurrency):
    """FedBuff: what arrives was trained from an older model, and counts (1 + age)^-0.5 of its weight (2)."""
    changes = SPEC["network"] | {"ending": "buffered", "concurrency": concurrency}
    (first, state), record = play("fedavg", network=changes)
    stale = 0
    for run, seed in enumerate(SPEC["seeds"]):
        network, held, steps = Network(seed), {}, 0
        w = jax.tree.map(lambda leaf, r=run: leaf[r].astype(np.float64), first)
        for round in range(1, ROUNDS + 1):
            members = record.selected[round - 1, run]
            members = members[members >= 0]
            for k in members:
                x = each(np.copy, w)
                for batch in network.batches(k, round):
                    x = each(lambda x, g: x - RATE * g, x, network.gradient(x, batch))
                held[k] = each(np.subtract, x, w), steps
            arrived = record.arrived[round - 1, run]
            arrived = arrived[arrived >= 0]
            for k in arrived:
                change, begun = held[k]
                weight = network.share[k] / network.share[arrived].sum() * (1 + steps - begun) ** -0.5
                stale += steps > begun
                w = each(lambda w, u, s=weight: w + s * u, w, change)
            steps += len(arrived) > 0
        for layer, value in w.items():
            np.testing.assert_allclose(state.params.params[layer][run], value, rtol=2e-4, atol=2e-5)
    assert stale > 20


@pytest.mark.slow
@pytest.mark.slow
def test_a_start_that_reads_the_servers_state_is_what_is_evaluated_and_kept():
    """An unused state of clients changes nothing. Constants of a model have no noise of the clients."""

    def made(client):
        def start(params, server, _):
            return jax.tree.map(lambda leaf, moved: leaf + 5 * moved, params, server)

        def combine(mean, params, server, arrived):
            return mean, jax.tree.map(lambda moved, step: 0.5 * moved + step, server, mean)

        return Algorithm(
            init=lambda params: (jax.tree.map(jnp.zeros_like, params), client), start=start, combine=combine
        )

    @parts.algorithm
    def ahead() -> Algorithm:
        return made(())

    @parts.algorithm
    def ahead_with_state() -> Algorithm:
        return made(jnp.float32(0))

    class Shifted(linen.Module):
        outputs: int

        @linen.compact
        def __call__(self, x):
            x = x.reshape(len(x), -1)
            table = self.variable("constants", "positions", lambda: jnp.arange(float(x.shape[1])))
            return linen.Dense(self.outputs)(x + 0.1 * table.value[None])

    @parts.model
    def shifted(*, num_outputs: int) -> linen.Module:
        return Shifted(num_outputs)

    small = {"rounds": 4, "eval_every": 1, "num_clients": 4, "clients_per_round": 2, "seeds": 2}
    small |= {"train_samples": 80, "keep_models": True, "model": "shifted"}
    names = ("ahead", "ahead_with_state")
    one, other = (pausejax.simulate("random", federated_algorithm=name, **small) for name in names)
    np.testing.assert_allclose(one["test_loss"], other["test_loss"], rtol=1e-5)
    for result in (one, other):
        for model in pausejax.models(result):
            (positions,) = jax.tree.leaves(model.weights.statistics)
            np.testing.assert_array_equal(positions, np.arange(positions.size))
    np.testing.assert_allclose(one["final_model"], other["final_model"], rtol=1e-5)
    plain = pausejax.simulate("random", **small)
    assert not np.allclose(one["final_model"], plain["final_model"])


@pytest.mark.slow
def test_scaffold_begins_as_fedavg():
    """Control variates are 0 in round 1: the same bits."""
    plain, controlled = (play(name, rounds=1)[0][1].params.params for name in ("fedavg", "scaffold"))
    jax.tree.map(np.testing.assert_array_equal, plain, controlled)


@pytest.mark.slow
def test_a_proximal_weight_is_fedprox_with_or_without_its_name():
    named = play("fedprox", rounds=3)[0][1]
    short = play("", training={"proximal_weight": 0.7}, rounds=3)[0][1]
    jax.tree.map(np.testing.assert_array_equal, named.params, short.params)


def test_a_personal_layer_is_not_sent():
    """A client sends the shared layer alone."""
    learning = simulation_of({"federated_algorithm": "fedper"})[0].config.learning
    assert learning.num_parameters == 64 * HIDDEN
    assert learning.sent.params.keys() == {"layer_1"}


def test_the_last_layer_is_taken_only_if_the_names_tell_it():
    def kept(*names, personal=""):
        layers = dict.fromkeys(names, jnp.ones(2))
        return set(fedper(personal_layers=personal).init({"params": layers})[1])

    assert kept("layers_1", "layers_10", "layers_9") == {"layers_10"}
    assert kept("fc2", "fc1") == {"fc2"}
    # Flax numbers the outer of two nested calls first, so Dense_0 may be the last layer.
    unclear = (
        ("Dense_0", "Dense_1"),
        ("Conv_0", "Conv_1", "Dense_0"),
        ("conv1", "conv2", "fc"),
        ("body", "head"),
    )
    for names in unclear:
        with pytest.raises(ValueError, match=f"Set personal_layers to some of {', '.join(names)}$"):
            kept(*names)
        assert kept(*names, personal=names[0]) == {names[0]}


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"federated_algorithm": "scaffold", "optimizer": "adam"}, 'optimizer = "adam"'),
        ({"federated_algorithm": "fedprox"}, "proximal_weight"),
        ({"federated_algorithm": "scaffold", "proximal_weight": 0.1}, "proximal_weight"),
        ({"federated_algorithm": "feddyn", "aggregator": "median"}, 'aggregator = "median"'),
        ({"federated_algorithm": "fedper", "personal_layers": "layer_9"}, "personal_layers"),
        ({"federated_algorithm": "fedper", "personal_layers": "layer_1,layer_2"}, "personal_layers"),
        ({"federated_algorithm": "fedper", "model": "linear"}, "two or more named layers"),
        ({"federated_algorithm": "fedmom"}, "federated_algorithm"),
    ],
)
def test_what_does_not_go_together_is_said_in_one_line(training, message):
    with pytest.raises((SpecError, parts.PartError)) as raised:
        simulation_of(training)
    assert message in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"upload": lambda local: local.params}, "upload must return two values"),
        (
            {"upload": lambda local: (local.params, local.params)},
            "the client's next state must keep",
        ),
        ({"upload": lambda local: (local.step, ())}, "upload must return float32"),
        ({"combine": lambda mean, params, server, arrived: ({}, server)}, "the update must keep"),
        ({"start": lambda params, server, client: 1 / 0}, "start: ZeroDivisionError"),
        ({"gradient": lambda gradient, local: None}, "what gradient returns must keep"),
        (None, "must return a pausejax.federated.algorithms.Algorithm"),
    ],
)
def test_wrong_algorithms_are_named_with_their_file(changes, message):
    from pausejax.federated.algorithms import Algorithm

    @parts.algorithm
    def wrong():
        return 3 if changes is None else Algorithm(**changes)

    with pytest.raises((SpecError, parts.PartError)) as raised:
        simulation_of({"federated_algorithm": "wrong"})[0].trace(2)
    line = str(raised.value)
    assert f"{__file__}: algorithm wrong: " in line and message in line and "\n" not in line
