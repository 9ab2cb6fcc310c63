"""A regression data set from outside the package is made from its own parameters, and is checked."""

import numpy as np
import pytest

import pausejax
from pausejax import parts
from pausejax.commands import main as cli
from pausejax.data.host import DataCache
from pausejax.ensemble import RegressionData, fit_pool, simulation
from pausejax.kinds import parse
from pausejax.study.plan import make_plan

STUDY = {"mode": "ensemble", "seeds": 2, "eval_every": 1}
X, Y = np.random.default_rng(0).uniform(size=(40, 3)), np.arange(40.0)
MINE = """
import numpy as np
import pausejax
from pausejax.ensemble import RegressionData


@pausejax.parts.regression_dataset
def mine(*, rows: int = 40, table_file: pausejax.File = pausejax.File("")):
    x = np.load(table_file)[:rows]
    return RegressionData("mine", x, x.sum(axis=1))
"""

pytestmark = pytest.mark.usefixtures("own_parts")


@pytest.fixture
def sine():
    @parts.regression_dataset
    def sine(*, num_clients, rows: int = 150, noise: float = 0.1):
        """y = sin x + noise."""
        rng = np.random.default_rng(num_clients)
        x = rng.uniform(0, 6, size=(rows, 1))
        return RegressionData("sine", x, np.sin(x[:, 0]) + noise * rng.normal(size=rows))


def tables_of(document):
    """The data set of each group of a study, which all share a cache, and its rounds."""
    plan, cache = make_plan(parse({**STUDY, **document})), DataCache()
    return [
        (
            group.static,
            simulation._table(plan.study, group, cache)[1],
            simulation.rounds_of(plan.study, group, cache),
        )
        for group in plan.groups
    ]


def test_the_data_are_made_from_the_values_of_their_runs(sine):
    data = {"dataset": "sine", "rows": [150, 900], "noise": [0.0, 5.0]}
    found = tables_of({"data": data, "network": {"num_clients": 9}, "policy": [{"name": "best_expert"}]})
    assert len(found) == 4
    for static, table, rounds in found:
        assert len(table.targets) == static["rows"] and rounds == {150: 15, 900: 90}[static["rows"]]
        off = np.abs(table.targets - np.sin(table.features[:, 0])).max()
        assert off == 0 if static["noise"] == 0 else off > 5


def test_a_parameter_that_is_a_file_is_its_path(tmp_path, capsys):
    """The paths of a spec are relative to its folder."""
    for name, rows in (("few", 30), ("many", 90)):
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(0).uniform(size=(rows, 2)))
    (tmp_path / "mine.py").write_text(MINE)
    spec = tmp_path / "spec.toml"
    spec.write_text(
        'mode = "ensemble"\neval_every = 1\nuse = ["mine.py"]\n[network]\nnum_clients = 9\n'
        '[data]\ndataset = "mine"\nrows = 60\ntable_file = ["few.npy", "many.npy"]\n'
        '[[policy]]\nname = "best_expert"\n'
    )
    plan, cache = make_plan(pausejax.kinds.load(spec)), DataCache()
    found = [simulation.rounds_of(plan.study, group, cache) for group in plan.groups]
    assert sorted(found) == [3, 6]  # 27 and 54 rows of the stream
    spec.write_text(spec.read_text().replace("many", "none"))
    assert cli.main(["plan", str(spec)]) == cli.BAD_SPEC
    (line,) = capsys.readouterr().err.splitlines()
    assert "none.npy" in line


@pytest.mark.slow
def test_runs_and_their_extension_play_on_their_own_data(sine, tmp_path):
    asked = {**STUDY, "dataset": "sine", "rounds": 10, "num_clients": 9, "rows": 200}
    both = pausejax.simulate("best_expert", noise=[0.0, 3.0], **asked)
    for noise in (0.0, 3.0):
        alone = pausejax.simulate("best_expert", noise=noise, **asked)
        mine = both.isel(run=both["noise"].values == noise)
        np.testing.assert_allclose(mine["mse"], alone["mse"], rtol=1e-6)
    calm, wild = both["mse"].values[[0, 2], -1]
    assert wild > 2 * calm
    pausejax.simulate("best_expert", noise=0.0, out=tmp_path, **asked)
    extended = pausejax.simulate("best_expert", noise=[0.0, 3.0], out=tmp_path, **asked)
    np.testing.assert_allclose(extended["mse"], both["mse"], rtol=1e-6)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ((X, Y), "must return a pausejax.ensemble.RegressionData, not tuple"),
        (RegressionData("", X, Y[20:]), "must have as many targets as rows of features, 40, not 20"),
        (RegressionData("", X[:, 0], Y), "features must be numbers of shape [n, d] with n, d > 0, not float"),
        (RegressionData("", X, Y[:, None]), "targets must be numbers of shape [n] with n > 0, not float64 ["),
        (RegressionData("", X[:0], Y[:0]), "features must be numbers of shape [n, d] with n, d > 0, not"),
        (RegressionData("", X.astype(str), Y), "features must be numbers of shape [n, d] with n, d > 0, not"),
        (RegressionData("", [[1.0], [1.0, 2.0]], Y), "> 0, not rows of unequal lengths"),
        (RegressionData("", np.ma.masked_less(X, 0.1), Y), "features must not have masked entries"),
        (RegressionData("", np.where(X > 0.9, np.nan, X), Y), "features must be finite, but has infinite or"),
        (RegressionData("", X, np.append(Y[:-1], np.inf)), "targets must be finite, but has infinite or NaN"),
    ],
)
def test_what_is_no_data_set_is_refused_in_one_line(made, message):
    @parts.regression_dataset
    def mine():
        return made

    with pytest.raises(pausejax.SpecError) as caught:
        pausejax.simulate("best_expert", dataset="mine", **STUDY)
    (line,) = str(caught.value).splitlines()
    assert f"{__file__}: regression_dataset mine: " in line and message in line
    if isinstance(made, RegressionData):
        with pytest.raises(ValueError, match=r"^dataset '': (features|targets|must)"):
            fit_pool(made)


def test_lists_are_data_too():
    lists = fit_pool(RegressionData("", X.tolist(), Y.astype(int).tolist()))
    for one, other in zip(lists, fit_pool(RegressionData("", X, Y)), strict=True):
        np.testing.assert_array_equal(one, other)
