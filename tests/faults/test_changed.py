"""Studies that are killed and go on with another spec: more runs, fewer, or the same in another order.

Every run of the result has the numbers that it has in an undisturbed study. `--kills N` says how many kills.
"""

import random
import time

import numpy as np
import pytest

import pausejax
from pausejax import kinds
from pausejax.results.description import checkpoints_of_others
from pausejax.results.folder import Folder
from pausejax.study.plan import make_plan

from . import folders, specs
from .test_kills import finished, kill_once, to_its_end
from .warm import Warm

# For each mode a spec, and the values that each of its axes is drawn from, by the path of the key.
BANDIT = {**specs.BANDIT, "rounds": 300}
TRAINING = {**specs.TRAINING, "rounds": 60}
ENSEMBLE = {**specs.ENSEMBLE, "rounds": 1000}
POOLS = {
    "bandit": (
        BANDIT,
        {
            "seeds": [4, 5, 6, 7, 8],
            "reward.gamma": [0.0, 1.0, 5.0, 25.0],
            "policy": [{"name": "pause"}, {"name": "random"}, {"name": "fastest"}],
        },
    ),
    "training": (
        TRAINING,
        {"seeds": [4, 5, 6, 7], "policy": [{"name": "pause"}, {"name": "fedavg", "private": False}]},
    ),
    "ensemble": (ENSEMBLE, {"seeds": [4, 5, 6, 7, 8], "policy": [{"name": "efl_fg"}, {"name": "exp3"}]}),
}
LANES = ("1", "2", "3")


def document_of(base, choice):
    """A spec with some values of every axis, in some order."""
    document = {**base}
    for path, values in choice.items():
        *sections, key = path.split(".")
        inner = document
        for section in sections:
            inner[section] = {**inner[section]}
            inner = inner[section]
        inner[key] = list(values)
    return document


def draw(pools, rng):
    """Some values of every axis, in random order."""
    return {path: rng.sample(pool, rng.randrange(1, len(pool) + 1)) for path, pool in pools.items()}


def change(choice, pools, rng):
    """Extends, shrinks or reorders one axis or all of them."""
    changed = dict(choice)
    for path in rng.sample(sorted(pools), rng.randrange(1, len(pools) + 1)):
        values = list(choice[path])
        kind = rng.choice(("extend", "extend", "shrink", "reorder"))
        if kind == "extend":
            for value in [value for value in pools[path] if value not in values]:
                if rng.random() < 0.6:
                    values.insert(rng.randrange(len(values) + 1), value)
        elif kind == "shrink" and len(values) > 1:
            del values[rng.randrange(len(values))]
        else:
            rng.shuffle(values)
        changed[path] = values
    return changed


def union(one, other):
    """A choice that has all of both, those of the second one first."""
    return {path: [*other[path], *(v for v in one[path] if v not in other[path])] for path in one}


def assert_own_numbers(result, expected):
    """Every run of a result has the numbers of the run of the same identity.

    What is learned is left out: training amplifies the last bits, which differ with the number of lanes.
    """
    place = {identity: number for number, identity in enumerate(expected.identity.values.tolist())}
    at = [place[identity] for identity in result.identity.values.tolist()]
    for name in set(result.data_vars) - {"test_accuracy", "test_loss", "train_loss"}:
        values, own = result[name].values, expected[name].values[at]
        own = own[tuple(slice(0, size) for size in values.shape)]  # other policies may have larger cohorts
        if np.issubdtype(values.dtype, np.floating):
            np.testing.assert_allclose(values, own, rtol=1e-4, atol=1e-4, err_msg=name)
        else:
            np.testing.assert_array_equal(values, own, err_msg=name)
    for name in ("policy", "seed"):
        np.testing.assert_array_equal(result[name].values, expected[name].values[at], err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("mode", POOLS)
def test_a_study_that_changes_while_it_is_down_has_the_same_numbers(tmp_path, mode, request):
    base, pools = POOLS[mode]
    first, kills = request.config.getoption("--first-seed"), request.config.getoption("--kills")
    share = -(-kills // len(POOLS))
    rng = random.Random(f"changed {mode} {first}")
    hits = tries = refused = studies = 0
    with Warm() as warm:

        def start(choice, out, lanes, name="spec.toml"):
            spec = folders.write(tmp_path, document_of(base, choice), name)
            often = ("--checkpoint-every", "0", "--lanes", lanes, "--log", "json")
            return warm.start(folders.command(spec, out, *often)[3:]), make_plan(kinds.load(spec))

        for name in ("whole", "again"):  # the second one finds its programs compiled
            begun = time.monotonic()
            process, plan = start(pools, tmp_path / name, "2")
            lines, runs = len(to_its_end(process)), len(plan.runs)
            took = time.monotonic() - begun
        expected = pausejax.open(tmp_path / "whole").load()
        while hits < share and tries < 10 * share:
            out, choice, studies = tmp_path / f"out-{studies}", draw(pools, rng), studies + 1
            for _ in range(rng.randrange(1, 5)):
                process, plan = start(choice, out, rng.choice(LANES))
                part = len(plan.runs) / runs
                met = kill_once(process, rng, took * part, int(lines * part))
                hits, tries = hits + met, tries + 1
                changed = change(choice, pools, rng)
                wanted = set(make_plan(kinds.parse(document_of(base, changed))).identities)
                if not finished(out, plan) <= wanted or checkpoints_of_others(Folder(out), wanted):
                    # What has begun may not be taken away: the command says so, and changes nothing.
                    errors = to_its_end(start(changed, out, "2")[0])
                    assert any("removes none" in line for line in errors), errors
                    refused += 1
                    changed = union(choice, changed)
                choice = changed
            process, plan = start(choice, out, rng.choice(LANES))
            errors = to_its_end(process)
            assert (out / "results.zarr").is_dir(), errors
            result = pausejax.open(out).load()
            assert result.identity.values.tolist() == list(plan.identities)
            assert_own_numbers(result, expected)
            print(f"{mode}: {hits} kills of {tries}, {studies} studies, {refused} refused", flush=True)
    assert hits >= share
