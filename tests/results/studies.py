"""Studies without a simulation: what a run leaves depends on its identity alone."""

import numpy as np
import xarray as xr

import pausejax
from pausejax.kinds import parse
from pausejax.results import labels, study_folder
from pausejax.study.plan import make_plan

ROUNDS, CLIENTS, SLOTS = 4, 5, 2


def make(seeds=4, **more):
    document = {
        "mode": "bandit",
        "rounds": ROUNDS,
        "seeds": seeds,
        "policy": [{"name": "pause"}, {"name": "random"}],
    }
    return make_plan(parse({**document, "network": {"K": CLIENTS, "m": SLOTS}, **more}))


def arrays_of(plan, places):
    """What the runs at some places leave; it depends on their identities alone."""
    found = labels.blank(
        plan.study.outputs.variables,
        plan.study.outputs.variables,
        len(places),
        {"round": ROUNDS, "slot": SLOTS, "client": CLIENTS},
    )
    for row, place in enumerate(places):
        draw = np.random.default_rng(int(plan.identities[place], 16))
        found["reward"][row] = draw.normal(size=ROUNDS)
        found["elapsed"][row] = draw.uniform(size=ROUNDS).cumsum()
        found["selected"][row] = draw.integers(0, CLIENTS, (ROUNDS, SLOTS))
        found["counts"][row] = np.bincount(found["selected"][row].ravel(), minlength=CLIENTS)
    return found


def finish(folder, plan, size=3):
    """A study without a simulation: every missing run's arrays, `size` runs a part."""
    done = study_folder.prepare(folder, plan).identities
    identities = plan.identities
    left = [place for place, identity in enumerate(identities) if identity not in done]
    for first in range(0, len(left), size):
        places = left[first : first + size]
        study_folder.write_part(folder, [identities[place] for place in places], arrays_of(plan, places))
    return study_folder.build_if_complete(folder, plan), len(left)


def expected(plan):
    return labels.merge(plan, [(range(len(plan.runs)), arrays_of(plan, range(len(plan.runs))))])


def check(directory, plan):
    xr.testing.assert_identical(pausejax.open(directory).load(), expected(plan))


class Killed(BaseException):
    """Stands for a process that is gone: nothing that it would do afterwards happens."""
