"""The coordinates of a result: what a run has no value of is marked, in the kind that the parameter is."""

import numpy as np
import pytest

import pausejax
from pausejax import kinds
from pausejax.results import blocks, labels, store
from pausejax.results.folder import Folder
from pausejax.study.plan import make_plan
from pausejax.study.spec import SpecError


def make(*policies):
    return make_plan(kinds.parse({"mode": "bandit", "rounds": 2, "policy": list(policies)}))


def test_what_a_run_does_not_have_is_marked():
    plan = make({"name": "random"}, {"name": "sa_pause", "annealing_steps": 7, "temperature_divisor": 3.0})
    found = labels.coordinates(plan)
    without, having = (np.flatnonzero(found["algorithm"] == name)[0] for name in ("random", "sa_pause"))
    assert (found["annealing_steps"][without], found["annealing_steps"][having]) == (-1, 7)
    assert np.isnan(found["temperature_divisor"][without]) and found["temperature_divisor"][having] == 3
    assert found["annealing_steps"].dtype.kind == "i"
    assert {"annealing_steps", "temperature_divisor"} <= set(found["unread_parameters"][without].split())
    assert found["unread_parameters"][having] == ""


def test_a_result_of_another_format_is_read_by_nobody(tmp_path):
    """Its fillings would be taken for values; identities are the same, so nothing else would tell."""
    plan = make({"name": "random"})
    known = plan.study.outputs.variables
    arrays = labels.blank(known, ("reward", "counts"), 1, {"round": 2, "client": 3})
    older = labels.merge(plan, [((0,), arrays)]).drop_vars("unread_parameters").assign_attrs(format=2)
    blocks.put(Folder(tmp_path), store.RESULT, older, 1)
    blocks.seal(Folder(tmp_path), store.RESULT)
    with pytest.raises(ValueError, match="holds a result of format 2, this release reads 3; read it with"):
        pausejax.open(tmp_path)
    with pytest.raises(SpecError, match="holds a result of format 2, this release writes 3; choose another"):
        store.prepare(Folder(tmp_path), plan)
    with pytest.raises(ValueError, match="is of format 2, this release writes 3; nothing was saved"):
        pausejax.save(older, tmp_path / "other")
