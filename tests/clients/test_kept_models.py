"""Studies that keep their models: the models are those that were evaluated, wherever and however played."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import pausejax
from pausejax import data, devices
from pausejax.clients.loop import initial_params
from pausejax.clients.simulation import ClientSimulation
from pausejax.data.host import DataCache
from pausejax.execution.estimate import plan_table
from pausejax.execution.local import LocalExecutor
from pausejax.execution.play import play
from pausejax.federated.kept import is_own, vectors_of_run
from pausejax.kinds import parse
from pausejax.results.folder import Folder
from pausejax.results.snapshot import Snapshot
from pausejax.results.stores import FolderStore
from pausejax.searches.options import SearchOptions, with_horizon
from pausejax.study.plan import make_plan
from pausejax.study.spec import SpecError

from ..alike import assert_alike

K, HIDDEN = 4, 6
MINE = """
import pausejax
from flax import linen

class Normed(linen.Module):
    outputs: int

    @linen.compact
    def __call__(self, x, train):
        x = linen.BatchNorm(use_running_average=not train, momentum=0.5, name="norm")(x.reshape(len(x), -1))
        x = linen.relu(linen.Dense(6, name="hidden")(x))
        return linen.Dense(self.outputs, name="head")(x)

@pausejax.model
def normed(*, num_outputs: int):
    return Normed(num_outputs)
"""
SPEC = {
    "rounds": 3,
    "eval_every": 2,
    "seeds": [3, 8],
    "keep_models": True,
    "use": ["mine.py"],
    "zip": [["model", "federated_algorithm", "batch_statistics"]],
    "network": {"num_clients": K, "clients_per_round": 1},
    "data": {"train_samples": 160, "partition": "dirichlet_quantity"},
    "training": {
        "model": ["linear", "normed", "normed"],
        "federated_algorithm": ["fedavg", "fedper", "fedavg"],
        "personal_layers": "head",
        "optimizer": "sgd",
        "learning_rate": [0.05, 1e15],
    },
    "privacy": {"private": False, "batch_statistics": ["private", "local", "clear"]},
    "policy": [{"name": "random"}],
}
SMALL = {
    **{key: SPEC[key] for key in ("keep_models", "network", "policy")},
    "seeds": [5, 3, 8],
    "rounds": 60,
    "eval_every": 30,
    "data": {"train_samples": 160},
    "training": {
        "model": "mlp",
        "federated_algorithm": "fedper",
        "optimizer": "sgd",
        "learning_rate": 0.05,
        "max_steps": 1,
    },
}


def simulate(document, out, progress=lambda _: None, *, shard=(1, 1), seconds=300.0, folder=Path(), **limits):
    plan = make_plan(parse(document, folder=folder))
    store = FolderStore(Folder(out), checkpoint_seconds=seconds)
    return play(plan, LocalExecutor(DataCache(), **limits), store, shard=shard, progress=progress)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of a spec with a model of its own, and of its result."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "mine.py").write_text(MINE)
    simulate(SPEC, folder / "out", folder=folder)
    return folder


@pytest.fixture(scope="module")
def result(folder):
    return pausejax.open(folder / "out").load()


def outputs_of(name, weights, inputs):
    """The logits of one model in float64."""
    params, statistics = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tuple(weights))
    mean, std = data.load("digits").scale
    x = (inputs.reshape(len(inputs), -1).astype(np.float64) - mean) / std
    if name == "linear":
        (layer,) = jax.tree.leaves(params, is_leaf=lambda t: "kernel" in t)
        return x @ layer["kernel"] + layer["bias"]
    norm, seen = params["norm"], statistics["batch_stats"]["norm"]
    x = (x - seen["mean"]) / np.sqrt(seen["var"] + 1e-5) * norm["scale"] + norm["bias"]
    x = np.maximum(x @ params["hidden"]["kernel"] + params["hidden"]["bias"], 0)
    return x @ params["head"]["kernel"] + params["head"]["bias"]


def losses_of(logits, labels):
    logits = logits - logits.max(axis=1, keepdims=True)
    return np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(labels)), labels]


@pytest.mark.slow
def test_models_evaluate_to_what_was_recorded(result, folder):
    digits, diverged = data.load("digits"), 0
    models = pausejax.models(result, folder=folder)
    assert len(models) == result.sizes["run"] == 12
    for run, model in enumerate(models):
        name = result["model"].values[run]
        applied = np.asarray(model.apply(model.weights, digits.test_inputs))
        if result["diverged_round"].values[run]:
            assert not np.isfinite(applied).all()
            diverged += 1
            continue
        logits = outputs_of(name, model.weights, digits.test_inputs)
        np.testing.assert_allclose(applied, logits, rtol=1e-3, atol=1e-4 * np.abs(logits).max())
        hits, loss = logits.argmax(axis=1) == digits.test_targets, losses_of(logits, digits.test_targets)
        assert float(result["test_accuracy"][run, -1]) == pytest.approx(hits.mean(), abs=1e-6)
        assert float(result["test_loss"][run, -1]) == pytest.approx(loss.mean(), rel=1e-5)
    assert 0 < diverged < 12


@pytest.mark.slow
def test_clients_have_their_own_layers_and_statistics_where_they_keep_them(result, folder):
    for run, model in enumerate(pausejax.models(result, folder=folder)):
        if result["federated_algorithm"].values[run] != "fedper":
            assert model.clients is None
            continue
        if result["diverged_round"].values[run]:
            continue
        took_part = result["counts"].values[run] > 0
        assert took_part.any() and not took_part.all()
        first = first_weights(result, folder, run)
        head, norm = model.clients.params["head"], model.clients.statistics["batch_stats"]["norm"]
        start = first.params["head"], first.statistics["batch_stats"]["norm"]
        sizes = data.partition.split(
            "dirichlet_quantity",
            data.load("digits").train_targets[:160],
            K,
            int(result["seed"][run]),
            batch_size=20,
        ).sizes
        weight = np.where(took_part, sizes, 0) / sizes[took_part].sum()
        mean = model.weights.params["head"], model.weights.statistics["batch_stats"]["norm"]
        for own, begun, evaluated in zip(*map(jax.tree.leaves, ((head, norm), start, mean)), strict=True):
            assert own.shape == (K, *begun.shape)
            changed = [not np.array_equal(own[client], begun) for client in range(K)]
            np.testing.assert_array_equal(changed, took_part)
            expected = np.tensordot(weight, own.astype(np.float64), 1)
            np.testing.assert_allclose(evaluated, expected, rtol=1e-4, atol=1e-6)
        for shared, alone in zip(
            *(jax.tree.leaves(w.params["hidden"]) for w in (model.clients, model.weights)), strict=True
        ):
            np.testing.assert_array_equal(shared, np.broadcast_to(alone, shared.shape))


def first_weights(result, folder, run):
    plan = make_plan(parse(SPEC, folder=folder))
    (group,) = [g for g in plan.groups if result["identity"].values[run] in {r.identity for r in g.runs}]
    model = ClientSimulation(plan.study, group, DataCache()).config.learning.model
    seed = np.array([result["seed"].values[run]], np.uint32)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[0], initial_params(model, seed))


@pytest.mark.slow
def test_unlike_models_are_padded_and_a_selection_has_its_own(result, folder):
    assert result["final_model"].dims == ("run", "model_weight") and result["final_model"].dtype == "float32"
    lengths = {"linear": 650, "normed": 64 * 4 + 65 * HIDDEN + (HIDDEN + 1) * 10}
    for run in np.flatnonzero(result["diverged_round"].values == 0):
        length = lengths[result["model"].values[run]]
        there = np.isfinite(result["final_model"].values[run])
        assert there[:length].all() and not there[length:].any()
    last = pausejax.select(result, {"federated_algorithm": "fedper"})
    models, every = (pausejax.models(some, folder=folder) for some in (last, result))
    kept = result["identity"].isin(last["identity"]).values
    of_all = [every[run] for run in np.flatnonzero(kept)]
    for one, other in zip(models, of_all, strict=True):
        jax.tree.map(np.testing.assert_array_equal, one[1:], other[1:])


@pytest.mark.slow
def test_applying_is_pure_and_shared_by_the_runs_of_a_program(result, folder):
    models = pausejax.models(pausejax.select(result, {"federated_algorithm": "fedper"}), folder=folder)
    assert len({model.apply for model in models}) == 1
    inputs = data.load("digits").test_inputs[:5]
    apply = jax.jit(jax.vmap(models[0].apply, (0, None)))
    one = np.asarray(apply(models[0].clients, inputs))
    for client in range(K):
        own = jax.tree.map(lambda leaf, k=client: leaf[k], models[0].clients)
        np.testing.assert_allclose(one[client], outputs_of("normed", own, inputs), rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_a_model_whose_file_has_changed_is_refused(result, folder, tmp_path):
    (tmp_path / "mine.py").write_text(MINE.replace("relu", "tanh"))
    with pytest.raises(ValueError, match="12 of 12 runs do not belong to the result's spec"):
        pausejax.models(result, folder=tmp_path)
    with pytest.raises(SpecError, match=r"use: mine.py: there is no file"):
        pausejax.models(result, folder=tmp_path / "nowhere")
    with pytest.raises(ValueError, match="has no models"):
        pausejax.models(result.drop_vars("final_model"), folder=folder)


@pytest.mark.slow
def test_another_process_applies_the_same_models(result, folder):
    code = (
        "import numpy as np, pausejax; r = pausejax.open('out');"
        "x = pausejax.data.load('digits').test_inputs;"
        "np.save('applied.npy', [m.apply(m.weights, x) for m in pausejax.models(r)])"
    )
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, env=dict(os.environ))
    inputs = data.load("digits").test_inputs
    models = pausejax.models(result, folder=folder)
    here = np.stack([model.apply(model.weights, inputs) for model in models])
    np.testing.assert_allclose(np.load(folder / "applied.npy"), here, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_off_means_no_array_no_program_and_no_identity_of_its_own(result, folder):
    document = {**SPEC, "keep_models": False, "seeds": [3], "zip": []}
    document |= {"training": {**SPEC["training"], "model": "linear", "federated_algorithm": "fedavg"}}
    document |= {"privacy": {"private": False}}
    plans = [make_plan(parse({**document, "keep_models": on}, folder=folder)) for on in (False, True)]
    assert not {"final_model", "client_models"} & plans[0].study.outputs.variables.keys()
    assert set(plans[0].identities).isdisjoint(plans[1].identities)
    programs = [ClientSimulation(plan.study, plan.groups[0], DataCache()) for plan in plans]
    assert programs[0].config == programs[1].config
    assert programs[0].model_bytes() == 0 and programs[1].model_bytes() == 4 * 650


class Interrupted(BaseException):
    pass


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    simulate(SMALL, folder)
    return pausejax.open(folder).load()


@pytest.mark.slow
def test_a_killed_study_ends_with_the_same_models(whole, tmp_path):
    told = []

    def interrupt(advanced):
        told.append(advanced)
        if len(told) == 2:
            raise Interrupted

    with pytest.raises(Interrupted):
        simulate(SMALL, tmp_path, interrupt, seconds=0.0)
    assert list(tmp_path.glob("checkpoints/*/state-*.npz"))
    simulate(SMALL, tmp_path)
    assert_alike(whole, pausejax.open(tmp_path).load())


@pytest.mark.slow
def test_a_study_without_personal_layers_is_stored(tmp_path):
    training = {"model": "linear", "max_steps": 1}
    simulate({**SMALL, "seeds": 1, "rounds": 2, "eval_every": 2, "training": training}, tmp_path)
    found = pausejax.open(tmp_path).load()
    assert found["client_models"].shape == (1, SMALL["network"]["num_clients"], 0)
    (model,) = pausejax.models(found)
    assert model.clients is None
    pausejax.save(found, tmp_path / "saved")
    assert_alike(found, pausejax.open(tmp_path / "saved").load())


@pytest.mark.slow
@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([{"max_width": 2}], id="width"),
        pytest.param([{"shard": (1, 2)}, {"shard": (2, 2)}], id="shards"),
        pytest.param([{"seeds": [8]}, {}], id="extended", marks=pytest.mark.slow),
    ],
)
def test_every_run_keeps_its_own_model_however_it_is_played(whole, tmp_path, steps):
    """Three runs on two devices, in batches of two rows of which one is padding, in parts, or one by one."""
    for step in steps:
        simulate({**SMALL, "seeds": step.pop("seeds", SMALL["seeds"])}, tmp_path, **step)
    found = pausejax.open(tmp_path).load()
    for variable in ("seed", "final_model", "client_models", "test_loss"):
        np.testing.assert_allclose(found[variable], whole[variable], rtol=1e-3, atol=1e-4)
    assert np.abs(np.diff(found["final_model"].values, axis=0)).max(axis=1).min() > 0.01


@pytest.mark.slow
def test_memory_and_a_saved_folder_hold_what_a_folder_holds(whole, tmp_path):
    options = {**SMALL["network"], **SMALL["data"], **SMALL["training"]}
    found = pausejax.simulate(
        "random", rounds=60, eval_every=30, seeds=SMALL["seeds"], keep_models=True, **options
    )
    np.testing.assert_array_equal(found["final_model"], whole["final_model"])
    np.testing.assert_array_equal(found["client_models"], whole["client_models"])
    pausejax.save(found, tmp_path)
    again = pausejax.models(pausejax.open(tmp_path))
    for one, other in zip(again, pausejax.models(found), strict=True):
        jax.tree.map(np.testing.assert_array_equal, one[1:], other[1:])


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"mode": "bandit"}, 'keep_models = true: mode = "bandit" trains no model'),
        ({"stop_at_latency": 5.0}, "keep_models = true: needs models after the last round"),
        ({"keep_models": 1}, "keep_models = 1: must be true or false"),
    ],
)
def test_what_has_no_last_model_is_refused_before_any_compute(changed, line):
    document = {**SMALL, **changed}
    if "mode" in changed:
        document = {key: document[key] for key in ("mode", "keep_models", "network", "policy")}
    with pytest.raises(SpecError) as refused:
        parse(document)
    (problem,) = refused.value.problems
    assert line in problem


def test_searches_keep_no_models():
    with pytest.raises(SpecError, match="keep_models: not allowed in a search"):
        with_horizon(parse(SMALL, searched=True), SearchOptions())


@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox", "scaffold", "feddyn"])
def test_only_what_start_takes_from_a_client_is_its_own(algorithm):
    training = {**SMALL["training"], "federated_algorithm": algorithm}
    training |= {"proximal_weight": 0.1} if algorithm == "fedprox" else {}
    plan = make_plan(parse({**SMALL, "training": training}))
    learning = ClientSimulation(plan.study, plan.groups[0], DataCache()).config.learning
    assert not any(is_own(learning))


@pytest.mark.slow
def test_the_programs_of_kept_models_are_forgotten_with_the_others(whole):
    (kind,) = {make_plan(parse(SMALL)).study.kind}
    devices.forget(kind.jitted)
    assert all(function._cache_size() == 0 for function in kind.jitted) and vectors_of_run in kind.jitted


@pytest.mark.slow
def test_a_plan_says_how_many_bytes_the_models_take():
    told = [str(line) for line in plan_table(make_plan(parse(SMALL)), DataCache()).renderables]
    (line,) = [line for line in told if line.startswith("keep_models")]
    each = 4 * (2778 + K * 170)
    assert f"of 3 runs, {each / 1e6:.4g} MB each: {3 * each / 1e6:.4g} MB" in line
    told = plan_table(make_plan(parse({**SMALL, "keep_models": False})), DataCache()).renderables
    assert not [line for line in told if str(line).startswith("keep_models")]


@pytest.mark.slow
def test_charts_do_not_read_the_weights(folder, monkeypatch):
    read, files = Snapshot.read, []

    def watch(self, key):
        files.append(key)
        return read(self, key)

    monkeypatch.setattr(Snapshot, "read", watch)
    assert "test_accuracy_vs_round" in pausejax.charts(pausejax.open(folder / "out"))
    kept = [key for key in files if key.startswith(("final_model/c", "client_models/c"))]
    assert not kept and [key for key in files if key.startswith("test_accuracy/c")]
