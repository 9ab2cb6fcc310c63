"""Studies from their specs to their numbers, replayed in float64 NumPy: what a spec says is what is played.

The replays start from the spec, never from the program that was made of it: they share its draws alone.
"""

import itertools
import tomllib
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import integrate

import pausejax
from pausejax import data, parts
from pausejax.clients import loop as simulation
from pausejax.clients.simulation import ClientSimulation
from pausejax.data.host import DataCache
from pausejax.devices import runs_mesh
from pausejax.kinds import parse
from pausejax.policies.base import Cohort, Policy
from pausejax.study.plan import make_plan

CLASSES, PIXELS, SAMPLES, K = 10, 64, 90, 3
SIZE = CLASSES + PIXELS * CLASSES
SPEC = {
    "seeds": [4, 9],
    "eval_every": 1,
    "network": {"num_clients": K, "clients_per_round": 2},
    "data": {"partition": "dirichlet_quantity", "train_samples": SAMPLES},
}


def play(document):
    """Plays a study of one group: the models before it, the final state, the records, the runs' values."""
    plan = make_plan(parse(document))
    (group,) = plan.groups
    made = ClientSimulation(plan.study, group, DataCache())
    world, hyper = made.arguments(group.runs)
    first = flat(simulation.initial_params(made.config.learning.model, world.seed).params)
    last = jnp.int32(plan.study.rounds)
    played = simulation.advance(
        made.config, runs_mesh(len(group.runs)), world, hyper, made.start(group.runs), jnp.int32(1), last
    )
    runs = [{**run.values, "seed": run.seed} for run in group.runs]
    return first, *jax.tree.map(np.asarray, played), runs


def flat(params):
    """[R, d] of a linear model: biases first."""
    found = np.asarray(jax.vmap(lambda tree: ravel_pytree(tree)[0])(params), np.float64)
    assert found.shape[1] == SIZE
    return found


class Plain:
    """Logistic regression on the digits of one seed's clients, one minibatch at a time."""

    def __init__(self, seed, **said):
        self.said, self.key = said, jax.random.key(seed)
        source = data.load("digits")
        self.mean, self.std = source.scale
        self.train = self.scaled(source.train_inputs[:SAMPLES]), source.train_targets[:SAMPLES]
        self.test = self.scaled(source.test_inputs), source.test_targets
        shares = data.partition.split(
            "dirichlet_quantity", self.train[1], K, seed, batch_size=said["batch_size"]
        )
        self.owned = [shares.order[o : o + s] for o, s in zip(shares.offsets, shares.sizes, strict=True)]
        self.sizes = shares.sizes.astype(np.float64)
        self.traces = {}

    def scaled(self, inputs):
        return (inputs.reshape(len(inputs), -1).astype(np.float64) - self.mean) / self.std

    def losses(self, weights, samples, gradient=False):
        """Cross-entropy of each sample, and the gradient of its mean."""
        inputs, labels = samples
        logits = inputs @ weights[CLASSES:].reshape(PIXELS, CLASSES) + weights[:CLASSES]
        logits -= logits.max(axis=1, keepdims=True)
        chance = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        losses = -np.log(chance[np.arange(len(labels)), labels])
        if not gradient:
            return losses
        error = (chance - np.eye(CLASSES)[labels]) / len(labels)
        return losses, np.concatenate([error.sum(axis=0), (inputs.T @ error).ravel()])

    def client_loss(self, weights, client):
        mine = self.owned[client]
        return self.losses(weights, (self.train[0][mine], self.train[1][mine])).mean()

    def train_client(self, start, client, round):
        """One client's change of the weights, and its minibatches' losses."""
        said, mine = self.said, self.owned[client]
        key = jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(self.key, round), 2), client)
        batch_key, noise_key = jax.random.split(key)
        batches = []
        for epoch in range(said["local_epochs"]):
            draw = np.asarray(jax.random.uniform(jax.random.fold_in(batch_key, epoch), (len(mine),)))
            order = mine[np.argsort(draw)]
            batches += [order[i : i + said["batch_size"]] for i in range(0, len(mine), said["batch_size"])]
        weights, found = start.copy(), []
        trace = self.traces.get(client, 0) if said.get("persist_optimizer") else 0
        for batch in batches[: said["max_steps"]]:
            losses, gradient = self.losses(weights, (self.train[0][batch], self.train[1][batch]), True)
            gradient += said.get("proximal_weight", 0) * (weights - start)
            trace = gradient + said.get("momentum", 0) * trace
            weights = weights - said["learning_rate"] * trace
            found.append(losses.mean())
        self.traces[client] = trace
        change = weights - start
        if said.get("private", True):
            bound = said["sensitivity"] / 2
            change *= min(1, bound / np.abs(change).sum())
            noise = np.asarray(jax.random.laplace(noise_key, change.shape), np.float64)
            change += noise * said["sensitivity"] / self.epsilon(client)
        return change, np.array(found)

    def epsilon(self, client):
        eta = self.said["budget_decay"]
        return self.said["privacy_budget"] * (np.exp(eta) - 1) * np.exp(-eta * (self.counts[client] + 1))

    def rounds(self, weights, cohorts):
        """The model, the training loss and the loss on the test set after each round."""
        self.counts, trace = np.zeros(K), 0
        for round, members in enumerate(cohorts, 1):
            share = self.sizes[members] / self.sizes[members].sum()
            trained = [self.train_client(weights, client, round) for client in members]
            mean = sum(s * change for s, (change, _) in zip(share, trained, strict=True))
            trace = mean + self.said.get("server_momentum", 0) * trace
            weights = weights + self.said.get("server_learning_rate", 1) * trace
            self.counts[members] += 1
            loss = sum(s * losses.mean() for s, (_, losses) in zip(share, trained, strict=True))
            yield weights, loss, self.losses(weights, self.test).mean()


MOMENTUM = {
    "optimizer": "momentum",
    "momentum": 0.6,
    "learning_rate": 0.03,
    "batch_size": 7,
    "local_epochs": 3,
    "max_steps": 9,
    "proximal_weight": 0.8,
    "persist_optimizer": True,
    "server_optimizer": "fedavgm",
    "server_learning_rate": 0.5,
    "server_momentum": 0.7,
}
PRIVATE = {
    "clip": "vector",
    "sensitivity": [1.0, 3.0],
    "privacy_budget": [300.0, 900.0],
    "budget_decay": [0.3, 0.5],
}
STEPS = {"optimizer": "sgd", "learning_rate": 0.05, "batch_size": 20, "local_epochs": 1, "max_steps": 100}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("training", "privacy"),
    [(MOMENTUM, {"private": False}), ({**STEPS, "learning_rate": [0.02, 0.05]}, PRIVATE)],
    ids=["everything in training", "clipped as a vector"],
)
def test_what_a_spec_says_of_training_is_how_clients_train(training, privacy):
    document = {
        **SPEC,
        "rounds": 4,
        "training": {"model": "linear", **training},
        "privacy": privacy,
        "policy": [{"name": "random"}],
    }
    first, state, record, runs = play(document)
    assert np.abs(first[0] - first[1]).max() > 0.05, "every seed starts from a model of its own"
    # The seeds of the first setting and of the last, and one in between.
    for run in {0, 1, len(runs) // 2, len(runs) - 1}:
        said = {**training, **privacy}
        said |= {name: runs[run][name] for name, value in said.items() if isinstance(value, list)}
        plain = Plain(runs[run]["seed"], **said)
        assert len(set(plain.sizes)) == K
        replay = list(plain.rounds(first[run], record.selected[:, run]))
        np.testing.assert_allclose(flat(state.params.params)[run], replay[-1][0], rtol=1e-3, atol=2e-4)
        np.testing.assert_allclose(record.train_loss[:, run], [loss for _, loss, _ in replay], rtol=2e-4)
        np.testing.assert_allclose(record.test_loss[:, run], [loss for _, _, loss in replay], rtol=2e-4)


@pytest.mark.slow
def test_a_kept_model_is_the_replayed_one():
    training = {**MOMENTUM, "local_epochs": 1, "max_steps": 4}
    found = pausejax.simulate(
        "random",
        seeds=SPEC["seeds"],
        rounds=4,
        eval_every=1,
        keep_models=True,
        private=False,
        model="linear",
        **SPEC["network"],
        **SPEC["data"],
        **training,
    )
    seeds = np.array(SPEC["seeds"], np.uint32)
    plan = make_plan(parse({**tomllib.loads(found.attrs["spec"])}))
    model = ClientSimulation(plan.study, plan.groups[0], DataCache()).config.learning.model
    first = flat(simulation.initial_params(model, seeds).params)
    for run, kept in enumerate(pausejax.models(found)):
        plain = Plain(SPEC["seeds"][run], private=False, **training)
        cohorts = found["selected"].values[run]
        *_, (weights, _, loss) = plain.rounds(first[run], cohorts)
        own = flat(jax.tree.map(lambda leaf: leaf[None], kept.weights.params))[0]
        np.testing.assert_allclose(own, weights, rtol=1e-3, atol=2e-4)
        logits = kept.apply(kept.weights, data.load("digits").test_inputs)
        chance = np.asarray(jax.nn.log_softmax(logits), np.float64)
        assert -chance[np.arange(len(chance)), plain.test[1]].mean() == pytest.approx(loss, rel=1e-3)


def noting(*, num_clients, clients_per_round, num_parameters):
    """Takes clients 2 and 1 in this order and leaves a slot empty; keeps whatever it was told."""

    def init(key, clients):
        seen = {"of_all": jnp.zeros((2, num_clients)), "told": jnp.zeros((4, 3))}
        return {"clients": clients, "update": jnp.zeros((3, num_parameters)), **seen}

    def select(key, state, view):
        return Cohort(jnp.array([2, 1, -1], jnp.int32), jnp.array([0.3, 0.7, 0.0]))

    def update(state, view, feedback):
        of_all = jnp.stack([view.latency, view.local_loss(jnp.arange(num_clients))])
        told = jnp.stack([feedback.latency, feedback.reward, feedback.loss, feedback.loss_rms])
        return {**state, "of_all": of_all, "told": told, "update": feedback.update}

    return Policy(init, select, update, needs_updates=True)


@pytest.mark.slow
def test_a_policy_is_told_what_has_happened(own_parts, tmp_path):
    """Client 0 is slowest and never takes part: neither an empty slot nor E[τ] may take it for another."""
    parts.policy(noting)
    latency = np.array([0.9, 0.3, 0.6])
    np.savetxt(tmp_path / "latency.csv", latency[None], delimiter=",")
    training = {**STEPS, "batch_size": 5, "learning_rate": 0.3}
    document = {
        **SPEC,
        "rounds": 1,
        "network": {
            **SPEC["network"],
            "latency": "trace",
            "trace_file": str(tmp_path / "latency.csv"),
            "min_latency": 0.2,
        },
        "training": {"model": "linear", **training},
        "privacy": {"private": False},
        "policy": [{"name": "noting"}],
    }
    first, state, record, _ = play(document)
    np.testing.assert_allclose(record.round_latency, 0.6, rtol=1e-6)
    np.testing.assert_array_equal(record.selected[0], [[1, 2, -1]] * 2)
    for run, seed in enumerate(SPEC["seeds"]):
        plain = Plain(seed, **training, private=False)
        told = jax.tree.map(lambda leaf, run=run: leaf[run], state.policy)
        np.testing.assert_allclose(told["clients"].expected_latency, latency, rtol=1e-6)
        np.testing.assert_allclose(told["clients"].data_share, plain.sizes / SAMPLES, rtol=1e-6)
        trained = [plain.train_client(first[run], client, 1) for client in (1, 2)]
        for row, (change, losses) in enumerate(trained):
            np.testing.assert_allclose(told["update"][row], change, rtol=1e-3, atol=1e-5)
            expected = (latency[row + 1], 0.2 / latency[row + 1], losses.mean(), np.sqrt((losses**2).mean()))
            np.testing.assert_allclose(told["told"][:, row], expected, rtol=1e-4)
        assert max(losses.std() / losses.mean() for _, losses in trained) > 0.05, "mean and rms differ"
        np.testing.assert_allclose(told["of_all"][0], latency, rtol=1e-6)
        local = [plain.client_loss(first[run], client) for client in range(K)]
        np.testing.assert_allclose(told["of_all"][1], local, rtol=1e-4)
        mean = 0.7 * trained[0][0] + 0.3 * trained[1][0]
        np.testing.assert_allclose(flat(state.params.params)[run], first[run] + mean, rtol=1e-3, atol=1e-5)
        loss = 0.7 * trained[0][1].mean() + 0.3 * trained[1][1].mean()
        assert record.train_loss[0, run] == pytest.approx(loss, rel=1e-4)
        assert abs(loss - (trained[0][1].mean() + trained[1][1].mean()) / 2) > 1e-3 * loss


def network_of(seed, rounds, num_clients, latency):
    """What a law's formula makes of the draws of a seed, [rounds, K]; `latency` takes the key of a round."""
    keys = (jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), t), 0) for t in range(1, rounds + 1))
    return np.stack([np.asarray(latency(key, (num_clients,)), np.float64) for key in keys])


# Means of five clients by the defaults: two fast ones up to 0.2 s, three slow ones above 0.7 s.
FLOOR, MEANS = 0.05, np.array([0.125, 0.2, 0.7 + 0.2 / 3, 0.7 + 0.4 / 3, 0.9])
SPREAD = 0.4


def lognormal(key, shape):
    factor = np.exp(SPREAD * np.asarray(jax.random.normal(key, shape), np.float64) - SPREAD**2 / 2)
    return FLOOR + (MEANS - FLOOR) * factor


def exponential(key, shape):
    return FLOOR + (MEANS - FLOOR) * np.asarray(jax.random.exponential(key, shape), np.float64)


def mean_speed(law):
    """E[τ_min / τ] of each client by adaptive quadrature over the law's own density."""

    def of_lognormal(z, excess):
        density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
        return FLOOR / (FLOOR + excess * np.exp(SPREAD * z - SPREAD**2 / 2)) * density

    def of_exponential(x, excess):
        return FLOOR / (FLOOR + excess * x) * np.exp(-x)

    function, low, high = (of_lognormal, -12, 12) if law == "lognormal" else (of_exponential, 0, 80)
    return np.array([integrate.quad(function, low, high, args=(mean - FLOOR,))[0] for mean in MEANS])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("law", "draw", "policy", "options"),
    [
        ("lognormal", lognormal, "random", {"latency_deviation": SPREAD}),
        ("shifted_exponential", exponential, "fedcs", {"deadline": 60.0}),
    ],
)
def test_rounds_and_oracle_follow_the_law_of_the_spec(law, draw, policy, options):
    k, m, rounds = 5, 2, 12
    found = pausejax.simulate(
        policy,
        mode="bandit",
        rounds=rounds,
        seeds=[6],
        num_clients=k,
        clients_per_round=m,
        latency=law,
        min_latency=FLOOR,
        privacy_weight=1.0,
        generalization_weight=2.0,
        **options,
    )
    latency, mu, counts = network_of(6, rounds, k, draw), mean_speed(law), np.zeros(k)
    sets = [list(s) for s in itertools.combinations(range(k), m)]
    if policy == "fedcs":
        fastest = np.sort(np.argsort(latency, axis=1)[:, :m], axis=1)
        np.testing.assert_array_equal(found["selected"].values[0], fastest)
        assert fastest.max() > 1, "not always the same ones"
    for t in range(1, rounds + 1):
        members = found["selected"].values[0, t - 1]
        lag = m / k - (counts / (t - 1) if t > 1 else 0 * counts)
        score = (2 * np.sign(lag) * lag**2 + np.exp(-0.04 * counts)) / m
        worth = {tuple(s): mu[s].min() + score[s].sum() for s in sets}
        lost = max(worth.values()) - worth[tuple(members.tolist())]
        assert float(found["pseudo_regret"][0, t - 1]) == pytest.approx(lost, abs=5e-5)
        assert float(found["round_latency"][0, t - 1]) == pytest.approx(
            latency[t - 1, members].max(), rel=1e-5
        )
        reward = (FLOOR / latency[t - 1, members]).min() + score[members].sum()
        assert float(found["reward"][0, t - 1]) == pytest.approx(reward, abs=2e-5)
        counts[members] += 1


@pytest.mark.slow
def test_every_policy_draws_with_keys_of_its_own():
    """The random policy's cohorts are permutations by the key of seed, round and name, and by no other's."""
    k, rounds, seed = 8, 12, 3
    found = pausejax.simulate(
        "random", mode="bandit", rounds=rounds, seeds=[seed], num_clients=k, clients_per_round=2
    )
    for name, agrees in (("random", True), ("oort", False)):
        drawn = []
        for t in range(1, rounds + 1):
            key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), t), 1)
            key = jax.random.fold_in(key, zlib.crc32(name.encode()) & 0x7FFFFFFF)
            drawn.append(np.sort(np.asarray(jax.random.permutation(key, k))[:2]))
        assert np.array_equal(found["selected"].values[0], drawn) == agrees
