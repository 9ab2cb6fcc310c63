"""The coordinates of a result: what a run has no value of is marked, in the kind that the parameter is."""

import dataclasses
from typing import Annotated, Literal

import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import pausejax
from pausejax import kinds, parts
from pausejax.network import Law
from pausejax.results import blocks, labels, study_folder
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
    blocks.put(Folder(tmp_path), study_folder.RESULT, older, 1)
    blocks.seal(Folder(tmp_path), study_folder.RESULT)
    with pytest.raises(
        ValueError, match=r"holds a result of format 2, but this release reads format 3. Read it with"
    ):
        pausejax.open(tmp_path)
    with pytest.raises(
        SpecError, match=r"holds a result of format 2, but this release writes format 3. Choose another"
    ):
        study_folder.prepare(Folder(tmp_path), plan)
    with pytest.raises(
        ValueError, match=r"has format 2, but this release writes format 3. Nothing was saved"
    ):
        pausejax.save(older, tmp_path / "other")


TIMES = {"min_latency", "fast_latency", "slow_latency", "slow_range", "deadline"}


def finished(folder, plan):
    """A study whose runs have left fill values."""
    known = plan.study.outputs.variables
    arrays = labels.blank(known, known, len(plan.runs), {"round": 2, "slot": 1, "client": 3})
    study_folder.write_part(folder, plan.identities, arrays)
    assert study_folder.build_if_complete(folder, plan) == 0
    return labels.merge(plan, [(range(len(plan.runs)), arrays)])


def units_in(result):
    return {name: c.attrs["units"] for name, c in result.coords.items() if "units" in c.attrs}


def test_parameters_have_their_units(tmp_path):
    plan = make({"name": "random"}, {"name": "fedcs"})
    merged = finished(Folder(tmp_path), plan)
    plain = xr.open_zarr(tmp_path / study_folder.RESULT)  # xarray makes time spans of numbers in "seconds"
    for result in (merged, pausejax.open(tmp_path), plain):
        assert units_in(result) == dict.fromkeys(TIMES, "s")
        assert result["min_latency"].dtype.kind == "f"


def test_a_result_that_says_no_units_gets_them_from_the_register(tmp_path):
    plan = make({"name": "random"}, {"name": "fedcs"})
    words = plan.study.words
    bare = {name: dataclasses.replace(p, units="") for name, p in words.parameters.items()}
    study = dataclasses.replace(plan.study, words=dataclasses.replace(words, parameters=bare))
    older = (
        plan._replace(study=study) if hasattr(plan, "_replace") else dataclasses.replace(plan, study=study)
    )
    finished(Folder(tmp_path), older)
    assert not units_in(study_folder.read(tmp_path))
    opened = pausejax.open(tmp_path)
    assert units_in(opened) == dict.fromkeys(TIMES, "s")
    assert not opened.variables["min_latency"]._in_memory
    own = opened.assign_coords(wait=("run", np.ones(opened.sizes["run"])))  # of a part that is not here
    assert "units" not in kinds.with_units(own)["wait"].attrs
    said = opened.assign_coords(deadline=opened["deadline"].assign_attrs(units="h"))
    assert kinds.with_units(said)["deadline"].attrs["units"] == "h"


def test_metrics_without_a_label_are_called_by_their_names():
    """As on the axes of a search's charts."""
    for mode in ("bandit", "ensemble"):
        policy = [{"name": {"bandit": "random", "ensemble": "efl_fg"}[mode]}]
        study = kinds.parse({"mode": mode, "rounds": 2, "policy": policy})
        labels = [metric.short_label for metric in study.outputs.metrics.values()]
        assert all(label.partition("(")[0].strip() for label in labels)


def test_parts_that_a_study_does_not_use_do_not_change_its_charts(tmp_path, own_parts):
    """They may have a parameter of the same name with another type and unit."""

    @parts.latency
    def ramp(*, num_clients: int, steepness: float = 2.0) -> Law:
        return Law(lambda key: steepness * jnp.ones(num_clients))

    @parts.latency
    def other(*, num_clients: int, steepness: Annotated[float, parts.Parameter(units="s")] = 2.0) -> Law:
        raise AssertionError

    @parts.policy
    def picky(*, num_clients: int, steepness: Literal["linear", "log"] = "linear"):
        raise AssertionError

    result = pausejax.simulate(
        "random", mode="bandit", rounds=3, clients_per_round=2, latency="ramp", steepness=[1.0, 2.0]
    )
    assert pausejax.charts(result)
    assert "units" not in kinds.with_units(result)["steepness"].attrs


def test_the_unit_of_a_part_of_ones_own_stays_with_the_result(tmp_path):
    part = tmp_path / "waiting.py"
    part.write_text(
        "import pausejax\n\n\n@pausejax.latency\n"
        "def waiting(*, num_clients, min_latency, wait=pausejax.Parameter(1.0, 'w', low=0, units='ms')):\n"
        "    raise NotImplementedError\n"
    )
    document = {"mode": "bandit", "rounds": 2, "use": [str(part)], "policy": [{"name": "random"}]}
    plan = make_plan(kinds.parse({**document, "network": {"latency": "waiting"}}))
    folder = Folder(tmp_path / "out")
    folder.make()
    finished(folder, plan)
    assert units_in(pausejax.open(tmp_path / "out")) == {"min_latency": "s", "wait": "ms"}
