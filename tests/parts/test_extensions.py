"""Users' own files: what is executed, what an identity covers, what travels, and what a mistake says."""

import ast
import contextlib
import hashlib
import importlib
import importlib.util
import json
import os
import pickle
import py_compile
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import cloudpickle
import numpy as np
import pytest

import pausejax
from pausejax import kinds, parts
from pausejax.commands import main as cli
from pausejax.parts import extensions, origin, registered_parts, source
from pausejax.study.plan import make_plan
from pausejax.study.spec import SpecError

ROOT = Path(__file__).resolve().parents[2]
POLICY = """
import jax.numpy as jnp
import pausejax
from pausejax.policies import cohort, memoryless
{more}
@pausejax.policy
def first_ones(*, clients_per_round: int, start: int = {start}):
    def select(key, state, view):
        return cohort(start + jnp.arange(clients_per_round, dtype=jnp.int32), state.data_share)
    return memoryless(select)
"""
SPEC = """
mode = "bandit"
rounds = 4
use = {use}
[network]
num_clients = 6
clients_per_round = 2
[[policy]]
name = "first_ones"
"""


def write(folder, start=0, *, more="", use='["mine.py"]', file="mine.py"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(POLICY.format(start=start, more=more))
    (folder / "spec.toml").write_text(SPEC.format(use=use))
    return folder / "spec.toml"


def forget(name):
    """Removes a module of the session, with the modules of its package."""
    for one in [one for one in sys.modules if f"{one}.".startswith(f"{name}.")]:
        del sys.modules[one]


def run(spec, out, *more):
    return cli.main(["run", str(spec), "--out", str(out), "--quiet", "--no-report", *more])


def first_of(out):
    return pausejax.open(out)["selected"].values[0, 0].tolist()


def identities(spec):
    return make_plan(kinds.load(spec)).identities


@pytest.mark.slow
def test_a_changed_file_is_another_study_and_the_folder_says_which(tmp_path, capsys):
    spec = write(tmp_path, 0)
    before = identities(spec)
    assert run(spec, tmp_path / "out") == cli.OK
    assert (tmp_path / "out" / "used" / "mine.py").read_text() == (tmp_path / "mine.py").read_text()
    # Of the same size and within the same second.
    write(tmp_path, 3)
    assert not set(identities(spec)) & set(before)
    assert run(spec, tmp_path / "out") == cli.BAD_SPEC
    assert "mine.py: its content has changed since" in capsys.readouterr().err
    assert run(spec, tmp_path / "other") == cli.OK
    assert (first_of(tmp_path / "out"), first_of(tmp_path / "other")) == ([0, 1], [3, 4])
    assert not list(tmp_path.rglob("__pycache__"))


def test_a_file_does_not_change_the_working_folder(tmp_path, monkeypatch):
    """Otherwise the results would be in another folder than the one that is asked for."""
    spec = write(tmp_path / "mine", more="import os\nos.chdir(os.path.dirname(__file__))")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError, match=r"use: mine\.py: changes the working folder"):
        kinds.load(spec)
    assert Path.cwd() == tmp_path


@pytest.mark.slow
def test_what_a_file_imports_from_its_folder_belongs_to_it(tmp_path, capsys):
    spec = write(tmp_path, "BEGIN", more="from helper import BEGIN")
    (tmp_path / "helper.py").write_text("BEGIN = 1\n")
    before = identities(spec)
    assert run(spec, tmp_path / "out") == cli.OK and first_of(tmp_path / "out") == [1, 2]
    assert (tmp_path / "out" / "used" / "helper.py").exists()
    (tmp_path / "helper.py").write_text("BEGIN = 2\n")
    assert not set(identities(spec)) & set(before)
    assert run(spec, tmp_path / "out") == cli.BAD_SPEC
    assert "helper.py: its content has changed since" in capsys.readouterr().err


LAB = "from lab_models.deep import BEGIN"
HELPERS = {
    "plain.py": "BEGIN = 1\n",
    "pack/__init__.py": '__all__ = ["star", "NAME"]\n__all__ += ["late"]\nNAME = 1\n',
    "pack/star.py": "VALUE = 1\n",
    "pack/late.py": "VALUE = 1\n",
    "pack/inner.py": "from . import other\nfrom .other import VALUE\n",
    "pack/other.py": "VALUE = 1\n",
    "lazy.py": "import pack.inner\n",
    "beside.py": "nobody imports this\n",
}


@pytest.mark.parametrize(
    "before",
    [
        (),
        pytest.param(("plain",), marks=pytest.mark.slow),
        pytest.param(("pack.other", "lazy"), marks=pytest.mark.slow),
        ("plain", "pack.inner", "lazy"),
    ],
)
def test_what_a_file_imports_belongs_to_it_whatever_was_imported_before(tmp_path, monkeypatch, before):
    """A changed helper counts too, although the process still holds the old one."""
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = write(tmp_path, "BEGIN", more="from plain import BEGIN\ndef later():\n    import lazy\n")
    for file, text in HELPERS.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    for name in before:
        importlib.import_module(name)
    found = {"mine.py", *HELPERS} - {"beside.py"}
    assert set(kinds.load(spec).parts.sources[0].files) == found
    names = {identities(spec)[0]}
    for file in ("plain.py", "pack/other.py", "lazy.py", "pack/star.py", "pack/late.py"):
        (tmp_path / file).write_text(HELPERS[file].replace("1", "2") + "# changed\n")
        names.add(identities(spec)[0])
    assert len(names) == 6
    assert kinds.load(spec).parts.get("policy", "first_ones").parameters["start"].default == 2
    for name in ("plain", "lazy", "pack", "pack.inner", "pack.other"):
        sys.modules.pop(name, None)


def start_of(layer):
    return layer.get("policy", "first_ones").parameters["start"].default


def test_the_session_keeps_its_own_modules(tmp_path, monkeypatch):
    """They are neither executed again nor used, whatever the session does with them."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "renewed").mkdir()
    for name in ("__init__", "laws", "plots"):
        (tmp_path / "renewed" / f"{name}.py").write_text("BEGIN = 1\n")
    importlib.import_module("renewed.plots")
    importlib.import_module("renewed.laws").BEGIN = 7
    before, path = dict(sys.modules), [*sys.path]
    spec = write(tmp_path / "study", "BEGIN", more="from renewed.laws import BEGIN\nimport renewed.plots")
    for begin in (1, 2):
        (tmp_path / "renewed" / "laws.py").write_text(f"BEGIN = {begin}\n")
        assert start_of(kinds.load(spec).parts) == begin
    (tmp_path / "renewed" / "laws.py").write_text("import renewed.other\n1 / 0\n")
    (tmp_path / "renewed" / "other.py").write_text("import sys\nsys.path.clear()\n")
    with pytest.raises(SpecError, match="ZeroDivisionError"):
        kinds.load(spec)
    assert {name: sys.modules[name] for name in before} == before and sys.path == path
    assert not {"renewed.other", "mine"} & sys.modules.keys()
    assert sys.modules["renewed"].laws.BEGIN == 7
    forget("renewed")


def test_a_helper_may_have_the_name_of_a_module_that_the_session_has_imported(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "twice.py").write_text("BEGIN = 7\n")
    monkeypatch.syspath_prepend(str(tmp_path / "elsewhere"))
    of_session = importlib.import_module("twice")
    spec = write(tmp_path, "BEGIN", more="from twice import BEGIN")
    (tmp_path / "twice.py").write_text("BEGIN = 1\n")
    assert start_of(kinds.load(spec).parts) == 1
    assert sys.modules.pop("twice") is of_session


@pytest.mark.parametrize(
    "session",
    [
        pytest.param("", marks=pytest.mark.slow),
        "lab_package",
        pytest.param("lab_package.speeds", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("init", [True, False])
def test_functions_read_the_modules_of_their_own_study(tmp_path, monkeypatch, session, init):
    """A function reads `lab_package.speeds.BEGIN` later, when other studies have executed other versions."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "lab_package").mkdir()
    speeds = tmp_path / "lab_package" / "speeds.py"
    if init:
        (tmp_path / "lab_package" / "__init__.py").touch()
    more = "import lab_package.speeds\ndef late():\n    return lab_package.speeds.BEGIN\n"
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "other.py").write_text("import lab_package.speeds\n")
    found = []
    try:
        for begin in (1, 2, 1):
            speeds.write_text(f"BEGIN = {begin}\n")
            if session:
                importlib.import_module(session)
            spec = write(tmp_path / "two", "BEGIN", more=f"{more}BEGIN = 3\n", use='["mine.py", "other.py"]')
            function = kinds.load(spec).parts.get("policy", "first_ones").function
            found.append((begin, function.__globals__["late"]))
        assert [late() for _, late in found] == [begin for begin, _ in found]
    finally:
        forget("lab_package")


def test_functions_import_the_modules_of_their_own_study(tmp_path, monkeypatch):
    """As they were when the study was read, and from every folder that was on the path then."""
    monkeypatch.setattr(extensions, "_LOADED", {})
    found = []
    for name in ("one", "two"):
        library = tmp_path / name / "library"
        library.mkdir(parents=True)
        (library / "late_library.py").write_text(f"from late_helper import BEGIN\nNAME = '{name}'\n")
        (tmp_path / name / "late_helper.py").write_text(f"BEGIN = '{name}'\n")
        more = f"import sys\nsys.path.append({str(library)!r})\n"
        more += (
            "def late():\n    from late_library import BEGIN, NAME\n    import json\n    return BEGIN, NAME\n"
        )
        spec = write(tmp_path / name, 0, more=more)
        layer = kinds.load(spec).parts
        assert set(layer.sources[0].files) == {"mine.py", "late_helper.py", "library/late_library.py"}
        found.append(layer.get("policy", "first_ones").function.__globals__["late"])
        (tmp_path / name / "late_helper.py").write_text("BEGIN = 'edited'\n")
    for late, name in zip(found * 2, ("one", "two") * 2, strict=True):
        assert late() == (name, name)
    assert not {"late_library", "late_helper"} & sys.modules.keys()


def test_a_file_may_play_a_study_with_another_file(tmp_path):
    """Each of the two has a helper of the same name, and imports it before and after the other study."""
    for name, begin in (("inner", 1), ("outer", 2)):
        write(tmp_path / name, "BEGIN", more="from nested_helper import BEGIN")
        (tmp_path / name / "nested_helper.py").write_text(f"BEGIN = {begin}\nimport nested_second\n")
        (tmp_path / name / "nested_second.py").write_text(f"BEGIN = {begin}\n")
    more = f"""
from pausejax import kinds
import nested_helper
study = kinds.load({str(tmp_path / "inner" / "spec.toml")!r})
INNER = study.parts.get("policy", "first_ones").parameters["start"].default
import nested_second
BEGIN = nested_helper.BEGIN * 100 + INNER * 10 + nested_second.BEGIN
"""
    layer = kinds.load(write(tmp_path / "outer", "BEGIN", more=more)).parts
    assert start_of(layer) == 212
    assert set(layer.sources[0].files) == {"mine.py", "nested_helper.py", "nested_second.py"}
    assert not {"nested_helper", "nested_second"} & sys.modules.keys()


def test_a_part_finds_its_classes_by_their_names(tmp_path):
    """As `pickle`, and pools of processes, do while a data set is prepared."""
    code = """
from __future__ import annotations
import pickle, typing
import pausejax
class Options:
    other: Options
@pausejax.policy
def pickled(*, num_clients: int):
    made = pickle.loads(pickle.dumps(Options()))
    assert type(made) is Options and typing.get_type_hints(Options) == {"other": Options}
    return num_clients
"""
    (tmp_path / "mine.py").write_text(code)
    (tmp_path / "spec.toml").write_text(SPEC.format(use='["mine.py"]').replace("first_ones", "pickled"))
    assert kinds.load(tmp_path / "spec.toml").parts.get("policy", "pickled").build(num_clients=3) == 3


def test_modules_of_computed_names_count(tmp_path, monkeypatch):
    (tmp_path / "computed_helper.py").write_text("BEGIN = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    more = "import importlib\nBEGIN = importlib.import_module('computed_' + 'helper').BEGIN"
    spec = write(tmp_path / "study", "BEGIN", more=more)
    assert kinds.load(spec).parts.sources[0].digests.keys() == {"computed_helper"}
    (tmp_path / "computed_helper.py").write_text("BEGIN = 2\n")
    assert start_of(kinds.load(spec).parts) == 2


@pytest.mark.parametrize(
    "way", ["pip install --target", "pip install --target, by a link", "a library that this package needs"]
)
def test_libraries_are_not_executed_again(tmp_path, monkeypatch, way):
    """A second copy may fail to import, and its classes are others than those of the first copy."""
    name = "targeted" if way.startswith("pip") else "dp_accounting"
    library = tmp_path / "library"
    library.mkdir()
    (library / f"{name}.py").write_text("BEGIN = object()\n")
    if name == "targeted":
        (library / "targeted-1.0.dist-info").mkdir()
        (library / "targeted-1.0.dist-info" / "RECORD").write_text(f"{name}.py,sha256=0,0\n")
    if way.endswith("link"):
        library = tmp_path / "link"
        library.symlink_to(tmp_path / "library")
    monkeypatch.syspath_prepend(str(library))
    before = sys.modules.pop(name, None)
    imported = importlib.import_module(name)
    try:
        spec = write(tmp_path / "study", 0, more=f"import {name}")
        layer = kinds.load(spec).parts
        assert layer.get("policy", "first_ones").function.__globals__[name] is imported
        assert set(layer.sources[0].files) == {"mine.py"} and not layer.sources[0].digests
    finally:
        del sys.modules[name]
        if before:
            sys.modules[name] = before


def test_every_library_that_this_package_imports_is_known():
    texts = [path.read_text() for path in (ROOT / "pausejax").rglob("*.py")]
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    found = {name.partition(".")[0] for name in names}
    assert found - sys.stdlib_module_names - {"pausejax"} <= origin.NEEDED


@pytest.mark.parametrize("held", ["nothing", "the package", "another module"])
@pytest.mark.parametrize("init", [True, False])
def test_a_module_that_a_package_holds_is_executed_anew(tmp_path, monkeypatch, init, held):
    """`from package import module` takes the attribute of a package that Python has imported before."""
    library = tmp_path / "library" / "holding"
    for folder in (library, tmp_path / "one" / "holding_too", tmp_path / "two" / "holding_too"):
        folder.mkdir(parents=True)
        if init:
            (folder / "__init__.py").write_text("")
        (folder / "other.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path / "library"))
    if held != "nothing":
        importlib.import_module("holding" if held == "the package" else "holding.other")
    more = "from holding import k\nfrom holding_too import k as own\n"
    try:
        for place, begin in (("one", 1), ("one", 2), ("two", 3), ("one", 2), ("two", 4)):
            (library / "k.py").write_text(f"BEGIN = {begin}\n")
            (tmp_path / place / "holding_too" / "k.py").write_text(f"BEGIN = {10 * begin}\n")
            layer = kinds.load(write(tmp_path / place, "k.BEGIN + own.BEGIN", more=more)).parts
            assert layer.get("policy", "first_ones").parameters["start"].default == 11 * begin
            (source,) = layer.sources
            assert "holding_too/k.py" in source.files and "holding.k" in source.digests
    finally:
        forget("holding")
        forget("holding_too")


@pytest.mark.parametrize("init", ["from lab_models.deep import BEGIN", None])
def test_modules_of_ones_own_in_another_folder_count_too(tmp_path, monkeypatch, init):
    """Such as a module beside the script, or a package of the lab that is installed in place."""
    (tmp_path / "lab_models").mkdir()
    if init:
        (tmp_path / "lab_models" / "__init__.py").write_text(init)
    deep, spec = tmp_path / "lab_models" / "deep.py", write(tmp_path / "parts", "BEGIN", more=LAB)
    monkeypatch.syspath_prepend(str(tmp_path))
    digests, begins = [], []
    for number in (1, 2, 1):
        deep.write_text(f"BEGIN = {number}\n# {'changed' * number}\n")
        study = kinds.load(spec)
        digests.append(study.parts.sources[0].digest)
        begins.append(study.parts.get("policy", "first_ones").parameters["start"].default)
    assert begins == [1, 2, 1] and digests[0] == digests[2] != digests[1]
    assert set(study.parts.sources[0].files) == {"mine.py"}


def test_the_text_of_a_file_is_what_is_executed_and_kept(tmp_path):
    """Not old bytecode of the same size and time; and not a text that comes while the file is executed."""
    spec, own = write(tmp_path, 0), tmp_path / "mine.py"
    os.utime(own, (1e9, 1e9))
    py_compile.compile(str(own))
    write(tmp_path, 3)
    os.utime(own, (1e9, 1e9))
    study = kinds.load(spec)
    assert study.parts.get("policy", "first_ones").parameters["start"].default == 3
    itself = "from pathlib import Path\nPath(__file__).write_text(Path(__file__).read_text() + '#')\n"
    write(tmp_path, 4, more=itself)
    text = own.read_bytes()
    (source,) = kinds.load(spec).parts.sources
    assert source.files["mine.py"] == text == own.read_bytes()[:-1]
    assert not source.is_current(tmp_path)


def test_a_module_of_another_folder_is_executed_anew(tmp_path, monkeypatch):
    (tmp_path / "lab_models").mkdir()
    deep, inner = tmp_path / "lab_models" / "deep.py", tmp_path / "lab_models" / "inner.py"
    deep.write_text("from lab_models.inner import BEGIN\n")
    spec = write(tmp_path / "parts", "BEGIN", more=LAB)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = []
    for text in ("BEGIN = 1\n", "BEGIN = 2\n", "BEGIN = 1\n"):
        inner.write_text(text)
        layer = kinds.load(spec).parts
        found.append((layer.get("policy", "first_ones").parameters["start"].default, layer.sources[0].digest))
    assert [start for start, _ in found] == [1, 2, 1] and found[0] == found[2] != found[1]


@pytest.mark.parametrize("place", ["beside", "elsewhere"])
def test_parts_that_a_session_has_registered_by_an_import_have_one_identity(tmp_path, monkeypatch, place):
    """A notebook imports its module of parts, and then plays the spec that names it."""
    folder = tmp_path if place == "beside" else tmp_path / "library"
    write(folder, 1, file="session_parts.py")
    spec = write(tmp_path, use='["entry.py"]')
    (tmp_path / "entry.py").write_text("import session_parts\n")
    monkeypatch.syspath_prepend(str(folder))
    registered = registered_parts()
    found = []
    try:
        for session in (False, True, True):
            extensions._LOADED.clear()
            if session:
                importlib.import_module("session_parts")
            found.append((identities(spec)[0], kinds.load(spec).parts.get("policy", "first_ones").is_of_use))
            forget("session_parts")
        assert set(found) == {(found[0][0], True)}
        # Another folder has an entry of the same name, as after a reload of the first one by the session.
        importlib.reload(importlib.import_module("session_parts"))
        other = write(tmp_path / "other", 2, file="session_parts.py", use='["session_parts.py"]')
        assert kinds.load(other).parts.get("policy", "first_ones").parameters["start"].default == 2
    finally:
        registered._own.pop(("policy", "first_ones"), None)
        forget("session_parts")


def test_packages_that_an_editable_install_maps_to_other_folders_count(tmp_path, monkeypatch):
    """As setuptools does for `package-dir = {"mapped.laws" = "src"}`."""
    (tmp_path / "src").mkdir()
    for name, text in (
        ("__init__", ""),
        ("k", "from mapped.laws.deep import BEGIN\n"),
        ("deep", "BEGIN = 1\n"),
    ):
        (tmp_path / "src" / f"{name}.py").write_text(text)

    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name == "pausejax.policies":  # of another copy of this package, which is not imported
                return importlib.util.spec_from_file_location(name, tmp_path / "src" / "k.py")
            if name == "mapped":
                return importlib.machinery.ModuleSpec(name, None, is_package=True)
            if not name.startswith("mapped.laws"):
                return None
            if name.startswith("mapped.laws.deep."):
                raise KeyError(name)  # as for packages whose parent is not loaded
            file = tmp_path / "src" / f"{name.removeprefix('mapped.laws').strip('.') or '__init__'}.py"
            return importlib.util.spec_from_file_location(name, file) if file.is_file() else None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    spec = write(tmp_path / "study", "BEGIN", more="from mapped.laws.k import BEGIN")
    found = []
    for begin in (1, 2):
        (tmp_path / "src" / "deep.py").write_text(f"BEGIN = {begin}\n")
        layer = kinds.load(spec).parts
        found.append(layer.get("policy", "first_ones").parameters["start"].default)
        (made,) = layer.sources
        assert made.digests.keys() == {"mapped.laws", "mapped.laws.k", "mapped.laws.deep"}
    assert found == [1, 2]
    forget("mapped")


def test_a_module_that_replaces_itself_is_read(tmp_path, monkeypatch):
    """Some libraries of settings put an object in the place of their module."""
    text = "import sys\nclass Settings:\n    BEGIN = 2\nsys.modules[__name__] = Settings()\n"
    (tmp_path / "lab_models.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = write(tmp_path / "parts", "lab_models.BEGIN", more="import lab_models")
    for _ in range(2):
        assert kinds.load(spec).parts.get("policy", "first_ones").parameters["start"].default == 2


@pytest.mark.parametrize("file", ["lab.py", "lab/__init__.py", "lab/deep/models.py"])
def test_modules_and_packages_beside_the_spec(tmp_path, file):
    name = file.removesuffix("/__init__.py").removesuffix(".py").replace("/", ".")
    spec = write(tmp_path, 2, use=json.dumps([name]), file=file)
    study = kinds.load(spec)
    assert file in study.parts.sources[0].files
    assert study.parts.get("policy", "first_ones").parameters["start"].default == 2


@pytest.mark.slow
def test_installed_packages_and_this_one_are_no_part_of_a_file(tmp_path, monkeypatch):
    """Also where the spec's folder holds the environment and the package."""
    installed = tmp_path / ".venv" / "lib" / "site-packages"
    installed.mkdir(parents=True)
    (installed / "somebody_elses.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(str(installed))
    spec = write(tmp_path, more="import somebody_elses")
    assert set(kinds.load(spec).parts.sources[0].files) == {"mine.py"}
    shown = subprocess.run(
        [
            sys.executable,
            "-c",
            "from pausejax import kinds; import sys\n"
            f"study = kinds.parse({{'use': ['examples/fairness.py'], 'policy': [{{'name': 'pause'}}]}},"
            f" folder=__import__('pathlib').Path({str(ROOT)!r}))\n"
            "print(*study.parts.sources[0].files)",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.split() == ["fairness.py"]


@pytest.mark.slow
def test_files_of_one_name_live_side_by_side(tmp_path):
    specs = [write(tmp_path / name, start) for name, start in (("a", 0), ("b", 4))]
    studies = [kinds.load(spec) for spec in specs]
    for spec, folder, expected in zip(specs, "ab", ([0, 1], [4, 5]), strict=True):
        assert run(spec, tmp_path / folder / "out") == cli.OK
        assert first_of(tmp_path / folder / "out") == expected
    made = [study.parts.get("policy", "first_ones").parameters["start"].default for study in studies]
    assert made == [0, 4]
    # In one study the copies must not hide one another.
    write(tmp_path, 0, use='["a/mine.py", "b/own.py"]', file="spare.py")
    (tmp_path / "b" / "own.py").write_text("import helper\n")
    for name in "ab":
        (tmp_path / name / "helper.py").write_text(f"NAME = '{name}'\n")
    (tmp_path / "a" / "mine.py").write_text(POLICY.format(start=0, more="import helper"))
    assert run(tmp_path / "spec.toml", tmp_path / "both") == cli.OK
    copies = {path.read_text() for path in (tmp_path / "both" / "used").rglob("helper.py")}
    assert copies == {"NAME = 'a'\n", "NAME = 'b'\n"}


def test_namesakes_of_two_files_are_a_mistake(tmp_path, capsys):
    """Not so a helper that both files import."""
    for name, start in (("a", 0), ("b", 4)):
        write(tmp_path / name, start)
    spec = write(tmp_path, use='["a/mine.py", "b/mine.py"]', file="spare.py")
    assert run(spec, tmp_path / "out") == cli.BAD_SPEC
    (line,) = capsys.readouterr().err.strip().splitlines()
    first, second = (tmp_path / name / "mine.py" for name in "ab")
    assert f"{second}: policy first_ones: {first} has a policy of this name" in line
    for name in "ab":
        (tmp_path / name / "mine.py").write_text("import shared\n")
        (tmp_path / name / "shared.py").write_text(POLICY.format(start=2, more=""))
    assert kinds.load(spec).parts.get("policy", "first_ones").parameters["start"].default == 2


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import pausejax\n\ndef broken(:\n", "use: mine.py: line 3: SyntaxError: "),
        ("x = 1\nnowhere()\n", "use: mine.py: line 2: NameError: name 'nowhere' is not defined"),
        ("import helper\n", "use: mine.py: helper.py: line 1: ZeroDivisionError: division by zero"),
        ("from absent import x\n", "use: mine.py: line 1: ModuleNotFoundError: No module named 'absent'"),
        ("raise ValueError('one\\ntwo')\n", "use: mine.py: line 1: one"),
        ("import sys\nsys.exit('usage')\n", "use: mine.py: line 2: SystemExit: usage"),
        (
            "import pausejax\n@pausejax.policy\ndef pause(): ...\n",
            "has a policy of this name. Choose another",
        ),
    ],
)
def test_a_file_that_fails_is_one_line(tmp_path, capsys, code, message):
    spec = write(tmp_path)
    (tmp_path / "mine.py").write_text(code)
    (tmp_path / "helper.py").write_text("1 / 0\n")
    assert run(spec, tmp_path / "out") == cli.BAD_SPEC
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line


@pytest.mark.parametrize(
    ("use", "message"),
    [
        ('["none.py"]', "use: none.py: there is no file"),
        ('["nowhere"]', "use: nowhere: there is no module of this name"),
        ('["mine..parts"]', "use: mine..parts: there is no module of this name"),
        ('["json.py"]', "use: json.py: a module named json is in use already, from "),
        ('"mine.py"', 'use = "mine.py": must be a list of files and modules'),
    ],
)
def test_entries_that_lead_nowhere(tmp_path, capsys, use, message):
    spec = write(tmp_path, use=use)
    (tmp_path / "json.py").write_text("")
    assert run(spec, tmp_path / "out", "--set", "policy=3") == cli.BAD_SPEC
    assert message in capsys.readouterr().err


def test_parts_registered_in_the_process_count_beside_files(tmp_path):
    """A notebook's, say: what such a part is stands in the identity too, and what is not used does not."""
    spec = write(tmp_path)
    document = tomllib.loads(spec.read_text())
    policies = [{"name": "first_ones"}, {"name": "noted"}]

    def identities(depth):
        space = {"__name__": "notebook", "parts": parts}
        code = f"@parts.policy\ndef noted(*, num_clients):\n    return {depth}\n"
        exec(compile(code, "<cell>", "exec"), space)
        study = kinds.parse({**document, "policy": policies}, folder=tmp_path)
        return make_plan(study).identities

    try:
        one, other, again = identities(1), identities(2), identities(1)
    finally:
        del parts.registered_parts()._own["policy", "noted"]
    assert one == again and one[0] == other[0] and one[1] != other[1]
    assert make_plan(kinds.load(spec)).identities == one[:1]


@pytest.mark.slow
def test_readers_of_a_result_execute_nothing(tmp_path, capsys):
    fuse = "import pathlib; pathlib.Path(__file__).with_name('executed').touch()"
    spec = write(tmp_path, more=fuse)
    assert run(spec, tmp_path / "out") == cli.OK
    (tmp_path / "executed").unlink()
    for command in (["report", "--quiet"], ["export", "--format", "csv"]):
        assert cli.main([command[0], str(tmp_path / "out"), *command[1:]]) == cli.OK
    assert pausejax.open(tmp_path / "out")["start"].values.tolist() == [0]
    assert not (tmp_path / "executed").exists()
    for path in (tmp_path / "mine.py", tmp_path / "out" / "used" / "mine.py"):
        path.unlink()
    assert cli.main(["report", str(tmp_path / "out"), "--quiet"]) == cli.OK
    assert first_of(tmp_path / "out") == [0, 1]


def test_plan_and_parts_know_the_file(tmp_path, capsys, monkeypatch):
    spec = write(tmp_path)
    assert cli.main(["plan", str(spec)]) == cli.OK
    assert "first_ones" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    assert cli.main(["parts", "policy", "--use", "mine.py"]) == cli.OK
    shown = capsys.readouterr().out
    assert "first_ones" in shown and "start" in shown


@pytest.mark.slow
def test_a_plan_travels_with_its_files(tmp_path):
    """To a process that has none of them; its numbers and identities are the same there."""
    spec = write(tmp_path, "BEGIN", more="from helper import BEGIN")
    (tmp_path / "helper.py").write_text("BEGIN = 3\n")
    plan = make_plan(kinds.load(spec))
    pickled = tmp_path / "plan.pickle"
    pickled.write_bytes(cloudpickle.dumps(plan))
    for name in ("mine.py", "helper.py", "spec.toml"):
        (tmp_path / name).unlink()
    code = """
    import pickle, sys, glob, tempfile
    from pausejax.data.host import DataCache
    from pausejax.execution.local import LocalExecutor
    from pausejax.execution.play import play_in_memory
    data = open(sys.argv[1], "rb").read()
    plan, again = pickle.loads(data), pickle.loads(data)
    functions = [p.study.parts.get("policy", "first_ones").function for p in (plan, again)]
    assert functions[0] is functions[1]
    print(*plan.identities, *play_in_memory(plan, LocalExecutor(DataCache())).selected.values[0, 0])
    """
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(pickled)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == [*plan.identities, "3", "4"]


def test_a_copy_finds_the_folders_that_a_file_adds_relative_to_its_own_place(tmp_path):
    """Workers execute a copy in another folder. Modules in folders that the file adds are not copied."""
    (tmp_path / "shared" / "added_lab").mkdir(parents=True)
    (tmp_path / "shared" / "added_common.py").write_text("BEGIN = 1\n")
    (tmp_path / "shared" / "added_lab" / "__init__.py").touch()
    (tmp_path / "shared" / "added_lab" / "speeds.py").write_text("BEGIN = 2\n")
    more = "import os, sys\nsys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'shared'))\n"
    more += "import added_common\nfrom added_lab import speeds\nBEGIN = added_common.BEGIN + speeds.BEGIN"
    layer = kinds.load(write(tmp_path / "study", "BEGIN", more=more)).parts
    assert set(layer.sources[0].files) == {"mine.py"}
    for _ in range(2):
        copy = pickle.loads(cloudpickle.dumps(layer))
        assert start_of(copy) == start_of(layer) == 3 and copy.sources == layer.sources
    (tmp_path / "shared" / "added_common.py").write_text("BEGIN = 5\n")
    with pytest.raises(parts.PartError, match="added_common has another content on this machine"):
        pickle.loads(cloudpickle.dumps(layer))


@pytest.mark.parametrize("way", ["link", "package without a file", "late", "removed from the path"])
def test_a_copy_finds_the_modules_of_other_folders_and_no_more(tmp_path, way):
    shared = tmp_path / "shared"
    (shared / "other_lab").mkdir(parents=True)
    for file in ("other_lab/speeds.py", "other_one.py", "other_trap.py"):
        (shared / file).write_text("BEGIN = 2\n")
    add = f"import sys\nsys.path.append({str(shared)!r})\n"
    more = {
        "link": "from linked_one import BEGIN",
        "package without a file": f"{add}from other_lab.speeds import BEGIN",
        "late": f"{add}def late():\n    from other_lab.speeds import BEGIN\n    return BEGIN\nBEGIN = 2",
        "removed from the path": f"{add}from other_one import BEGIN\nsys.path.pop()\n"
        "try:\n    from other_trap import BEGIN\nexcept ImportError:\n    pass",
    }[way]
    spec = write(tmp_path / "study", "BEGIN", more=more)
    (tmp_path / "study" / "linked_one.py").symlink_to(shared / "other_one.py")
    layer = kinds.load(spec).parts
    copy = pickle.loads(cloudpickle.dumps(layer))
    assert start_of(copy) == 2 and copy.sources == layer.sources
    if way == "late":
        assert copy.get("policy", "first_ones").function.__globals__["late"]() == 2


@pytest.mark.parametrize("first", ["the folder", "another folder"])
def test_a_folder_that_the_file_puts_first_comes_before_its_own(tmp_path, first):
    for folder, begin in (("study", 1), ("shared", 2), ("last", 3)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "twice_named.py").write_text(f"BEGIN = {begin}\n")
    more = f"import sys\nsys.path.insert(0, {str(tmp_path / 'shared')!r})\nfrom twice_named import BEGIN\n"
    if first == "another folder":
        more += f"sys.path.insert(0, {str(tmp_path / 'last')!r})\n"
    spec = write(tmp_path / "study", "BEGIN", more=more)
    for begin in (2, 4):
        (tmp_path / "shared" / "twice_named.py").write_text(f"BEGIN = {begin}\n")
        for _ in range(2):
            layer = kinds.load(spec).parts
            assert start_of(layer) == begin and layer.sources[0].digests.keys() == {"twice_named"}
            assert start_of(pickle.loads(cloudpickle.dumps(layer))) == begin


def test_a_file_may_be_imported_under_the_name_of_its_package_too(tmp_path, monkeypatch, own_parts):
    """By the session, or by another file of `use`."""
    monkeypatch.syspath_prepend(str(tmp_path))
    write(tmp_path / "named_parts", 3)
    (tmp_path / "second.py").write_text("from named_parts.mine import first_ones\n")
    spec = write(tmp_path / "study", use='["../named_parts/mine.py", "../second.py"]')
    assert start_of(kinds.load(spec).parts) == 3
    importlib.import_module("named_parts.mine")
    for use in ('["../named_parts/mine.py"]', '["../named_parts/mine.py", "../second.py"]'):
        assert start_of(kinds.load(write(tmp_path / "study", 5, use=use)).parts) == 3
    forget("named_parts")


def test_a_notebooks_cell_may_be_run_again():
    def made(value):
        def noted(*, num_clients: int, depth: int = value):
            """A policy."""

        return noted

    with parts.collecting() as layer:
        parts.policy(made(1))
        parts.policy(made(2))
    assert layer.get("policy", "noted").parameters["depth"].default == 2
    np.testing.assert_array_equal(sorted(layer.get("policy", "noted").reads), ["depth", "num_clients"])


def test_a_helper_with_the_name_of_a_loaded_module_is_refused(tmp_path):
    """Python would execute its own module, whatever the digest covers."""
    for name in ("random", "time"):
        spec = write(tmp_path / name, f"int({name}.__doc__ is None)", more=f"import {name}")
        (tmp_path / name / f"{name}.py").write_text("")
        with pytest.raises(SpecError, match=f"{name}.py: a module named {name} is in use already, from"):
            kinds.load(spec)


def test_linked_helpers_are_modules_of_another_folder(tmp_path):
    (tmp_path / "shared").mkdir()
    shared, linked = tmp_path / "shared" / "linked_helper.py", tmp_path / "study" / "linked_helper.py"
    shared.write_text("BEGIN = 3\n")
    spec = write(tmp_path / "study", "BEGIN", more="from linked_helper import BEGIN")
    other = tmp_path / "other" / "linked_helper.py"
    other.parent.mkdir()
    other.write_text("BEGIN = 5\n")
    below = tmp_path / "study" / "inner" / "linked_helper.py"
    below.parent.mkdir()
    below.write_text("BEGIN = 6\n")
    for file, text, begin in (
        (shared, "BEGIN = 3\n", 3),
        (shared, "BEGIN = 3 + 1\n", 4),
        (other, "BEGIN = 5\n", 5),
        (below, "BEGIN = 6\n", 6),
    ):
        file.write_text(text)
        linked.unlink(missing_ok=True)
        linked.symlink_to(file)
        layer = kinds.load(spec).parts
        assert layer.get("policy", "first_ones").parameters["start"].default == begin
        (made,) = layer.sources
        outside = file is not below
        assert set(made.files) == {"mine.py"} | (
            {"inner/linked_helper.py", "linked_helper.py"} if not outside else set()
        )
        assert set(made.digests) == ({"linked_helper"} if outside else set())
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "linked_parts.py").write_text("import pausejax\n")
    (tmp_path / "study" / "linked_package").symlink_to(tmp_path / "package")
    spec = write(tmp_path / "study", 0, use='["linked_package.linked_parts"]')
    with pytest.raises(SpecError, match=r"linked_parts: is a link to .*linked_parts\.py"):
        kinds.load(spec)


def test_a_module_that_comes_later_in_a_folder_that_the_file_adds_is_found(tmp_path, monkeypatch):
    for name in ("library", "added"):
        (tmp_path / name).mkdir()
    later = tmp_path / "added" / "later_constants.py"
    (tmp_path / "library" / "later_constants.py").write_text("BEGIN = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path / "library"))
    more = f"import sys\nsys.path.insert(0, {str(tmp_path / 'added')!r})\nfrom later_constants import BEGIN"
    spec, found = write(tmp_path / "study", "BEGIN", more=more), []
    for text in ("", "BEGIN = 2\n", ""):
        later.unlink(missing_ok=True)
        if text:
            later.write_text(text)
        layer = kinds.load(spec).parts
        assert kinds.load(spec).parts.sources[0] is layer.sources[0]
        found.append((start_of(layer), layer.sources[0].digest))
    assert [begin for begin, _ in found] == [1, 2, 1] and found[0] == found[2] != found[1]


def test_folders_that_the_session_adds_to_its_path_are_searched(tmp_path, monkeypatch):
    spec, found = write(tmp_path / "study", "BEGIN", more="from added_by_session import BEGIN"), []
    for begin in (1, 2):
        (tmp_path / str(begin)).mkdir()
        (tmp_path / str(begin) / "added_by_session.py").write_text(f"BEGIN = {begin}\n")
        monkeypatch.syspath_prepend(str(tmp_path / str(begin)))
        found.append(start_of(kinds.load(spec).parts))
    assert found == [1, 2]


@pytest.mark.parametrize("path", [False, True])
def test_the_file_that_a_link_chooses_counts(tmp_path, path):
    """The study also imports the other file, so that both are files of the study before and after."""
    for name, begin in (("slow", 1), ("fast", 2)):
        (tmp_path / "variants").mkdir(exist_ok=True)
        (tmp_path / "variants" / f"{name}.py").write_text(f"BEGIN = {begin}\n")
    more = "from variants import slow, fast\nfrom chosen import BEGIN"
    folder = tmp_path / "library" if path else tmp_path
    folder.mkdir(exist_ok=True)
    if path:
        more = f"import sys\nsys.path.append({str(folder)!r})\n{more}"
    spec = write(tmp_path, "BEGIN", more=more)
    found = []
    for name in ("slow", "fast", "slow"):
        (folder / "chosen.py").unlink(missing_ok=True)
        (folder / "chosen.py").symlink_to(tmp_path / "variants" / f"{name}.py")
        layer = kinds.load(spec).parts
        found.append((start_of(layer), layer.sources[0].digest))
        (copy,) = source.written(layer.sources[0]).rglob("chosen.py")
        assert copy.read_text() == f"BEGIN = {found[-1][0]}\n"
    assert [begin for begin, _ in found] == [1, 2, 1] and found[0] == found[2] != found[1]


def test_a_package_of_which_a_library_has_a_part_is_refused(tmp_path, monkeypatch):
    """Its modules are attributes of one object, which the session and all studies would share."""
    for folder, name in ((tmp_path / "site-packages", "core"), (tmp_path / "own", "speeds")):
        (folder / "split_package").mkdir(parents=True)
        (folder / "split_package" / f"{name}.py").write_text("BEGIN = 1\n")
        monkeypatch.syspath_prepend(str(folder))
    spec = write(tmp_path / "study", 0, more="import split_package.core, split_package.speeds")
    with pytest.raises(SpecError, match=r"the package split_package also has modules of a library\."):
        kinds.load(spec)
    forget("split_package")


def test_threads_of_a_part_may_import(tmp_path):
    (tmp_path / "thread_helper.py").write_text("BEGIN = 1\n")
    code = """
import concurrent.futures
import pausejax
def late(number):
    from thread_helper import BEGIN
    return BEGIN + number
def all_of_them():
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return list(pool.map(late, range(4)))
AT_ONCE = all_of_them()
@pausejax.policy
def threaded(*, num_clients: int):
    return all_of_them() + AT_ONCE
"""
    (tmp_path / "mine.py").write_text(code)
    (tmp_path / "spec.toml").write_text(SPEC.format(use='["mine.py"]').replace("first_ones", "threaded"))
    part = kinds.load(tmp_path / "spec.toml").parts.get("policy", "threaded")
    assert part.build(num_clients=3) == [1, 2, 3, 4] * 2


def test_a_helper_that_comes_later_is_found(tmp_path):
    more = "try:\n    from late_helper import BEGIN\nexcept ImportError:\n    BEGIN = 1\n"
    spec = write(tmp_path, "BEGIN", more=more)
    begins = []
    for text in ("", "BEGIN = 2\n"):
        if text:
            (tmp_path / "late_helper.py").write_text(text)
        begins.append(kinds.load(spec).parts.get("policy", "first_ones").parameters["start"].default)
    assert begins == [1, 2]


def test_modules_of_a_folder_that_the_file_adds_to_the_path_count(tmp_path):
    """At the first load as at the second; a fresh process finds them only when it executes the file."""
    (tmp_path / "library").mkdir()
    more = f"import sys\nsys.path.append({str(tmp_path / 'library')!r})\nfrom added_constants import BEGIN"
    found = []
    for number in (1, 2):
        (tmp_path / "library" / "added_constants.py").write_text(f"BEGIN = {number}\n")
        spec = write(tmp_path / "study", "BEGIN", more=more)
        for _ in range(2):
            study = kinds.load(spec)
            found.append((study.parts.sources[0].digest, study.parts.get("policy", "first_ones").parameters))
        assert str(tmp_path / "library") not in sys.path
        extensions._LOADED.clear()
    digests, parameters = zip(*found, strict=True)
    assert digests[0] == digests[1] != digests[2] == digests[3]
    assert [one["start"].default for one in parameters] == [1, 1, 2, 2]


@pytest.mark.parametrize("way", ["at once", "edited", "on the path", "imported", "failed"])
def test_modules_below_the_folder_are_files_whatever_the_session_did_before(tmp_path, monkeypatch, way):
    """A session and a terminal must have one identity, or the folder of one is refused by the other."""
    monkeypatch.setattr(extensions, "_LOADED", {})
    monkeypatch.setattr(sys, "path", [*sys.path])
    inner = tmp_path / "inner"
    inner.mkdir()
    helper = inner / "below_helper.py"
    helper.write_text("BEGIN = 3\n")
    more = f"import sys\nsys.path.insert(0, {str(inner)!r})\nfrom below_helper import BEGIN\n"
    try:
        if way in ("edited", "failed"):
            write(tmp_path, "BEGIN", more=more + ("raise ValueError\n" if way == "failed" else "# a note\n"))
            helper.write_text("BEGIN = 1\n")
            with pytest.raises(SpecError) if way == "failed" else contextlib.nullcontext():
                kinds.load(tmp_path / "spec.toml")
            helper.write_text("BEGIN = 3\n")
        elif way != "at once":
            sys.path.insert(0, str(inner))
            if way == "imported":
                importlib.import_module("below_helper")
        spec = write(tmp_path, "BEGIN", more=more)
        for _ in range(2):
            layer = kinds.load(spec).parts
            assert layer.get("policy", "first_ones").parameters["start"].default == 3
            (source,) = layer.sources
            assert source.files.keys() == {"mine.py", "inner/below_helper.py"} and not source.digests
            extensions._LOADED.clear()
        helper.write_text("BEGIN = 4\n")
        layer = kinds.load(spec).parts
        assert layer.get("policy", "first_ones").parameters["start"].default == 4
    finally:
        sys.modules.pop("below_helper", None)


def test_each_file_imports_from_the_folders_that_it_adds_itself(tmp_path, monkeypatch):
    """Two folders have a module of the same name, which imports a module beside the file of `use`."""
    found = {}
    for name, begin in (("one", 1), ("two", 2), ("one", 1), ("two", 2)):
        library = tmp_path / name / "library"
        library.mkdir(parents=True, exist_ok=True)
        library.joinpath("twin_helper.py").write_text(f"from twin_{name} import BEGIN\n")
        library.joinpath(f"twin_{name}.py").write_text("from twin_constants import BEGIN\n")
        more = f"import sys\nsys.path.append({str(library)!r})\nfrom twin_helper import BEGIN"
        spec = write(tmp_path / name / "study", "BEGIN", more=more)
        (tmp_path / name / "study" / "twin_constants.py").write_text(f"BEGIN = {begin}\n")
        extensions._LOADED.clear()
        layer = kinds.load(spec).parts
        assert layer.get("policy", "first_ones").parameters["start"].default == begin
        assert layer.sources[0].digests.keys() == {"twin_helper", f"twin_{name}"}
        assert found.setdefault(name, layer.sources[0].digest) == layer.sources[0].digest
    monkeypatch.syspath_prepend(str(tmp_path / "one" / "study"))
    monkeypatch.syspath_prepend(str(tmp_path / "one" / "library"))
    for name in ("twin_helper", "twin_one", "twin_constants"):
        sys.modules.pop(name, None)
    importlib.import_module("twin_helper")
    more = f"import sys\nsys.path.insert(0, {str(tmp_path / 'two' / 'library')!r})\nimport twin_helper"
    spec = write(tmp_path / "three", more=more)
    digests = kinds.load(spec).parts.sources[0].digests
    assert digests.keys() == {"twin_helper", "twin_two", "twin_constants"}
    for name in ("twin_helper", "twin_one", "twin_constants"):
        sys.modules.pop(name, None)


def test_a_module_may_be_a_file_here_and_installed_there():
    """A worker finds a package of the folder where it is installed, and must have the same content."""
    sent = source.Source("a.py", "a", {"a.py": b"", "src/b.py": b"B = 1"}, {}, {"c": "1", "d": "2"})
    there = hashlib.sha256(b"B = 1").hexdigest()
    a = {"a.py": b""}
    assert source.unlike(sent, source.Source("a.py", "a", a, {}, {"b": there, "c": "1", "d": "2"})) == []
    here = source.Source("a.py", "a", {**a, "e.py": b"E = 1"}, {}, {"b": "0", "c": "0"})
    assert source.unlike(sent, here) == ["src/b.py", "e.py", "b", "c", "d"]


def test_a_copy_that_imports_other_files_is_refused(tmp_path, monkeypatch):
    """Such as modules that the file finds in the working folder, which is another one on a cluster."""
    more = "import importlib, pathlib\nfor one in sorted(pathlib.Path('cwd_plugins').glob('*.py')):\n"
    more += "    importlib.import_module(f'cwd_plugins.{one.stem}')"
    spec = write(tmp_path, more=more)
    for folder in ("cwd_plugins", "elsewhere"):
        (tmp_path / folder).mkdir()
    (tmp_path / "cwd_plugins" / "law.py").touch()
    monkeypatch.chdir(tmp_path)
    sent = cloudpickle.dumps(kinds.load(spec).parts)
    pickle.loads(sent)
    extensions._LOADED.clear()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(parts.PartError, match=r"mine\.py: cwd_plugins/law\.py has another content on this"):
        pickle.loads(sent)
