"""The house keeps its rules: who imports whom, how large a room or file is, and who knows which names."""

import ast
import inspect
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import pausejax.ensemble.policies
import pausejax.policies
from pausejax import data
from pausejax.parts import registered_parts

from .analysis.made_up import build, store

PACKAGE = Path(pausejax.__file__).parent
FLOORS = (
    ("__init__", "__main__"),
    ("commands",),
    ("api",),
    ("kinds",),
    ("cluster",),
    ("searches",),
    ("execution",),
    ("results",),
    ("clients", "ensemble"),
    ("study",),
    ("page",),
    ("plotting",),
    ("analysis",),
    ("policies",),
    ("federated",),
    ("data",),
    ("regret",),
    ("selection",),
    ("bandit", "network", "privacy"),
    ("devices", "measured", "rounding", "atomic"),
    ("parts",),
    ("lazy", "spelling", "version"),
)
"""From the top; a room imports only from floors beneath its own."""

OTHER_MEANINGS = {
    ("study/axes.py", "random"),  # a way to sample ranges
    *((f"searches/{name}.py", "random") for name in ("options", "sampler")),  # a sampler
    ("clients/parameters.py", "fedavg"),  # a server optimizer and an algorithm
    *((f"clients/{name}.py", "fedavg") for name in ("build", "checks")),  # the algorithm
    ("federated/algorithms/__init__.py", "fedavg"),
    ("api.py", "pause"),  # what `simulate` plays if it is told nothing
}


def name_of(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def tree(module):
    return ast.parse(MODULES[module].read_text())


def room(module):
    return module.split(".")[1] if "." in module else "__init__"


def imports(module):
    """The modules of the package that one imports, at its head, within functions or for type checking."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            wanted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            inside = (f"{node.module}.{alias.name}" for alias in node.names)
            wanted = [name if name in MODULES else node.module for name in inside]
        else:
            continue
        yield from (name for name in wanted if name in MODULES and name != module)


def test_every_room_has_a_floor():
    assert {room(module) for module in MODULES} == {name for floor in FLOORS for name in floor}


def test_imports_go_downward():
    floor = {name: number for number, names in enumerate(FLOORS) for name in names}
    upward = [
        f"{module} imports {other}"
        for module in MODULES
        if room(module) != "__init__"
        for other in imports(module)
        if room(other) != room(module) and floor[room(other)] <= floor[room(module)]
    ]
    assert not upward


def test_no_imports_go_in_circles():
    done, open_ = set(), []

    def visit(module):
        assert module not in open_, " -> ".join([*open_[open_.index(module) :], module])
        if module in done:
            return
        open_.append(module)
        for other in imports(module):
            visit(other)
        done.add(open_.pop())

    for module in MODULES:
        visit(module)


def test_rooms_and_files_stay_small():
    lines = {module: len(path.read_text().splitlines()) for module, path in MODULES.items()}
    assert not {module: count for module, count in lines.items() if count > 300}
    of_room = {}
    for module, count in lines.items():
        of_room[room(module)] = of_room.get(room(module), 0) + count
    largest = max(of_room, key=of_room.get)
    assert of_room[largest] <= 0.15 * sum(lines.values()), largest


def test_reading_results_loads_no_training():
    found = loaded("import pausejax.analysis, pausejax.parts, pausejax.plotting")
    assert not {"flax", "optax", "orbax", "ray"} & found and "pausejax.plotting" in found


def test_drawing_leaves_pyplot_alone():
    found = loaded("import pausejax.plotting.paper")
    assert "matplotlib.figure" in found and "matplotlib.pyplot" not in found


MADE = """
import xarray
from pausejax.analysis import metrics_of
from pausejax.plotting import curves, grid, request, sweeps
result = xarray.open_zarr(FOLDER + "/results.zarr").load()
cells, known = grid.arrange(result), metrics_of(result)
made = [curves.curves(cells, known[name], "time") for name in ("max_leakage", "cumulative_regret")]
runs, asked = request.resolve(result, ["elapsed", "max_leakage"])
made += [*sweeps.sweep_charts(result).values(), *sweeps.charts_of(runs, asked).values()]
assert sweeps.sweep_table(result) and request.omitted(result, [], cells) and len(made) > 5
"""
WRITTEN = "\n[(one.to_dataframe(), one.to_vega(), one.encode('csv'), one.encode('json')) for one in made]"


@pytest.mark.parametrize(
    ("code", "later"),
    [
        (MADE + WRITTEN, {"jax", "flax"}),
        # The list of kinds knows their parts, which are programs.
        pytest.param(
            "import pausejax; made = pausejax.charts(pausejax.open(FOLDER)).values()" + WRITTEN,
            set(),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_results_and_charts_are_data(code, later, tmp_path):
    """Building and writing them, from a stored result on, loads no JAX and nothing that draws."""
    policies = {"pause": {"privacy_weight": [1.0, 5.0]}, "uniform": {}}
    store(build(policies, 2, ("privacy_weight",))[0], tmp_path)
    found = loaded(f"FOLDER = {str(tmp_path)!r}\n{code}")
    assert not {"matplotlib", "scipy.stats", *later} & found and "pausejax.plotting.vega" in found


HEAVY = {"orbax", "tensorflow_datasets", "array_record", "sklearn", "ray", "mlflow", "wandb", "tensorboardX"}
"""Libraries that nothing loads (Orbax, which Flax brings), or what needs them: data, clusters, trackers."""


@pytest.mark.parametrize(
    ("code", "later"),
    [
        ("import pausejax", {"jax", "numpy", "xarray", "matplotlib"}),
        ("from pausejax.commands.main import _parser; _parser()", {"jax", "xarray", "matplotlib"}),
        pytest.param("import pausejax; pausejax.simulate", {"matplotlib"}, marks=pytest.mark.slow),
        pytest.param(
            "import pausejax.commands.run, pausejax.execution.play, pausejax.results.study_folder",
            {"matplotlib"},
            marks=pytest.mark.slow,
        ),
        pytest.param("import pausejax.plotting.paper", {"jax"}, marks=pytest.mark.slow),
    ],
)
def test_libraries_are_loaded_where_they_are_used(code, later):
    """Nor are those of `later`, which a later step needs."""
    assert not (HEAVY | later) & loaded(code)


STORING = {"xarray", "pandas", "zarr", "orbax", "tensorstore"}
SLOW = {"scipy.sparse", "scipy.stats", "flax.nnx", "sklearn", "matplotlib"}


@pytest.mark.parametrize(
    ("arguments", "later"),
    [
        (("plan", "sweeps/paper/fig1.toml"), {*STORING, *SLOW}),
        pytest.param(("plan", "sweeps/quickstart.toml"), {*STORING, *SLOW}, marks=pytest.mark.slow),
        (("run", "missing.toml", "--out", "out"), {"jax", "numpy", *STORING, *SLOW}),
        pytest.param(
            ("run", "BANDIT", "--out", "OUT", "--quiet", "--no-report"),
            {"flax.nnx", "sklearn", "matplotlib"},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_command_loads_what_it_needs(tmp_path, arguments, later):
    """`pausejax plan` is instant because of what it leaves alone; a spec that is missing costs no JAX."""
    data.load("digits")  # scikit-learn has been asked for them
    bandit = tmp_path / "bandit.toml"
    bandit.write_text('mode = "bandit"\nrounds = 2\n[[policy]]\nname = "random"\n')
    named = {"BANDIT": str(bandit), "OUT": str(tmp_path / "out")}
    typed = [named.get(argument, argument) for argument in arguments]
    found = loaded(f"from pausejax.commands.main import main; main({typed})")
    assert not later & found and "pausejax.commands.main" in found
    assert ("jax" in found) == ("jax" not in later)


@pytest.mark.parametrize("package", [pausejax, pausejax.analysis])
def test_names_that_wait_are_there(package):
    assert set(package.__all__) <= set(dir(package))
    for name in package.__all__:
        assert not inspect.ismodule(getattr(package, name))
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'nonsense'"):
        package.nonsense  # noqa: B018


def loaded(code):
    """The modules that a new process has when it has run some code."""
    code += "; import sys; print('modules:', *sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent
    )
    return set(found.stdout.rpartition("modules:")[2].split())


def test_errors_keep_their_causes():
    hidden = [
        f"{module}:{node.lineno}"
        for module in MODULES
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Raise) and isinstance(node.cause, ast.Constant)
    ]
    assert not hidden


def test_only_the_kinds_know_their_modes():
    asked = [
        f"{module}:{node.lineno}"
        for module in MODULES
        if room(module) not in ("clients", "ensemble")
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Compare)
        for side in (node.left, *node.comparators)
        if getattr(side, "attr", getattr(side, "id", "")) == "mode"
    ]
    assert not asked


def test_no_policy_is_known_by_name():
    names = {*registered_parts().of("policy"), *registered_parts().of("ensemble_policy")}
    known = {
        (path.relative_to(PACKAGE).as_posix(), node.value)
        for module, path in MODULES.items()
        if room(module) != "policies"
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names
    }
    assert known <= OTHER_MEANINGS
