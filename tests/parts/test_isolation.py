"""Modules of files of `use`: which are executed, when they are in place, and what of the session they see."""

import builtins
import importlib
import importlib.util
import pickle
import shutil
import signal
import sys
import threading
import zipfile

import cloudpickle
import pytest

import pausejax
from pausejax import kinds
from pausejax.parts import PartError, isolation, registered_parts, source, visits
from pausejax.study.spec import SpecError

from .test_extensions import forget, identities, start_of, write

ORDERS = (("one", "two"), ("two", "one"))
LATENCY = """
import jax.numpy as jnp
import pausejax
from pausejax.network import Law
{more}
@pausejax.latency
def mine(*, num_clients: int, min_latency: float):
    def sample(key):
        {code}
        return jnp.full(num_clients, min_latency * factor)
    return Law({made})
"""
LAW = {"mode": "bandit", "rounds": 2, "num_clients": 3, "clients_per_round": 1, "min_latency": 1.0}


def latency_of(folder, *, more="", code="", made="sample", seeds=1):
    (folder / "law.py").write_text(LATENCY.format(more=more, code=code, made=made))
    use = [str(folder / "law.py")]
    result = pausejax.simulate(["random"], use=use, latency="mine", seeds=seeds, **LAW)
    return float(result["round_latency"].values[0, 0])


def test_what_modules_of_computed_names_import_counts(tmp_path):
    """Also modules that come later: the file may import every module that it finds in the folder."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "__init__.py").touch()
    (tmp_path / "kernels" / "fast.py").write_text(
        "def begin():\n    from plugin_common import V\n    return V\n"
    )
    more = """
import importlib, pkgutil
import kernels
FOUND = [importlib.import_module(f"kernels.{one.name}") for one in pkgutil.iter_modules(kernels.__path__)]
BEGIN = sum(one.begin() for one in FOUND)
"""
    common, spec = tmp_path / "plugin_common.py", write(tmp_path, "BEGIN", more=more)
    digests = set()
    for value in (1, 2):
        common.write_text(f"V = {value}\n")
        layer = kinds.load(spec).parts
        assert start_of(layer) == value and "plugin_common.py" in layer.sources[0].files
        digests.add(layer.sources[0].digest)
    assert kinds.load(spec).parts.sources[0] is layer.sources[0]
    (tmp_path / "kernels" / "second.py").write_text("def begin():\n    return 10\n")
    layer = kinds.load(spec).parts
    assert start_of(layer) == 12 and len(digests | {layer.sources[0].digest}) == 3


def test_a_package_may_list_its_own_folder(tmp_path):
    (tmp_path / "listing_package").mkdir()
    listed = "sorted(f[:-3] for f in os.listdir(os.path.dirname(__file__)) if f.endswith('.py'))"
    text = f"import os\n__all__ = {listed}\n__all__.remove('__init__')\n"
    (tmp_path / "listing_package" / "__init__.py").write_text(text)
    more = "import listing_package\nfrom listing_package import *\n"
    more += "BEGIN = sum(getattr(listing_package, name).BEGIN for name in listing_package.__all__)"
    spec, found = write(tmp_path, "BEGIN", more=more), []
    for value in (0, 1, 2):
        if value:
            (tmp_path / "listing_package" / f"speeds{value}.py").write_text(f"BEGIN = {value}\n")
        layer = kinds.load(spec).parts
        assert kinds.load(spec).parts.sources[0] is layer.sources[0]
        found.append(start_of(layer))
    assert found == [0, 1, 3]


def test_an_optional_module_of_a_computed_name_is_noticed(tmp_path):
    """Other new files do not matter: the study keeps its functions, and so its compiled programs."""
    more = """
import importlib
try:
    BEGIN = importlib.import_module("_".join(["optional", "begin"])).BEGIN
except ImportError:
    BEGIN = 1
"""
    spec = write(tmp_path, "BEGIN", more=more)
    first = kinds.load(spec).parts
    (tmp_path / "unrelated.py").write_text("1 / 0\n")
    again = kinds.load(spec).parts
    assert start_of(again) == 1
    assert again.get("policy", "first_ones").function is first.get("policy", "first_ones").function
    (tmp_path / "optional_begin.py").write_text("BEGIN = 2\n")
    assert start_of(kinds.load(spec).parts) == 2


@pytest.mark.parametrize("way", ["listed", "optional", "executed"])
def test_a_module_in_a_new_folder_is_noticed(tmp_path, way):
    listed = "for name in sorted(one.parent.name for one in HERE.glob('new_plugins/*/law.py')):"
    loop = "for name in ('first', 'second'):" if way == "optional" else listed
    law = 'importlib.import_module(f"new_plugins.{name}.law")'
    added = f"    with contextlib.suppress(ImportError):\n        BEGIN += {law}.BEGIN"
    if way == "executed":
        added = '    exec(f"from new_plugins.{name}.law import BEGIN as added")\n    BEGIN += added'
    more = f"""
import contextlib, importlib, pathlib
HERE, BEGIN = pathlib.Path(__file__).parent, 0
{loop}
{added}
"""
    spec, found = write(tmp_path, "BEGIN", more=more), []
    for name, begin in (("first", 1), ("second", 2)):
        (tmp_path / "new_plugins" / name).mkdir(parents=True)
        (tmp_path / "new_plugins" / name / "law.py").write_text(f"BEGIN = {begin}\n")
        layer = kinds.load(spec).parts
        assert kinds.load(spec).parts.sources[0] is layer.sources[0]
        found.append(start_of(layer))
    assert found == [1, 3]


def test_a_file_that_computes_names_is_not_executed_again_for_nothing(tmp_path):
    """Some statements can be executed only once in a process, such as registering a class with JAX."""
    more = "import importlib.util\nHAS_ONE = importlib.util.find_spec('not_installed_anywhere') is not None\n"
    more += f"with open({str(tmp_path / 'executed')!r}, 'a') as file:\n    file.write('x')"
    spec = write(tmp_path / "study", more=more)
    (tmp_path / "study" / "out" / "used").mkdir(parents=True)
    (tmp_path / "study" / "out" / "labels.npz").touch()
    for number in range(3):  # a study writes copies of the files
        assert start_of(kinds.load(spec).parts) == 0
        (tmp_path / "study" / "out" / "used" / f"copy{number}.py").touch()
    assert (tmp_path / "executed").read_text() == "x"


@pytest.fixture
def interruptible():
    """Python's own handler of Ctrl-C. A shell starts jobs in the background with this signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("where", ["put", "undo", "body"])
@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_leaves_the_session_as_it_was(tmp_path, monkeypatch, where):
    """Wherever Ctrl-C is pressed: it is raised when the exchange of the modules is complete."""
    spec = write(tmp_path, more="import interrupted_helper")
    (tmp_path / "interrupted_helper.py").touch()
    in_place = kinds.load(spec).parts.get("policy", "first_ones").surroundings
    before = {*sys.modules}, [*sys.path], [*sys.meta_path]
    exchange, times = isolation._exchange, []

    def interrupted(old, new):
        times.append(
            signal.raise_signal(signal.SIGINT) if len(times) == ["put", "undo"].index(where) else None
        )
        exchange(old, new)

    if where != "body":
        monkeypatch.setattr(isolation, "_exchange", interrupted)

    def cell():
        with in_place():
            assert "interrupted_helper" in sys.modules
            if where == "body":
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        cell()
    monkeypatch.undo()
    assert ({*sys.modules}, [*sys.path], [*sys.meta_path]) == before
    assert not visits._STAYS and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with in_place():
        assert "interrupted_helper" in sys.modules


def test_functions_do_not_import_a_module_that_only_the_session_has(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    optional = tmp_path / "optional_speeds.py"
    optional.write_text("FACTOR = 7.0\n")
    importlib.import_module("optional_speeds")
    optional.unlink()
    more = """
def speed():
    try:
        from optional_speeds import FACTOR
    except ImportError:
        return 2.0
    return FACTOR
"""
    assert latency_of(tmp_path, more=more, code="factor = speed()") == 2
    assert sys.modules.pop("optional_speeds").FACTOR == 7


@pytest.mark.parametrize("made", ["sample", pytest.param("Sample(sample)", marks=pytest.mark.slow)])
def test_functions_find_the_classes_of_their_own_modules_when_they_are_called(tmp_path, monkeypatch, made):
    """The session has the class of before an edit."""
    monkeypatch.syspath_prepend(str(tmp_path))
    helper = tmp_path / "pickled_tables.py"
    more = """
import dataclasses, pickle, typing
from pickled_tables import Table
@dataclasses.dataclass(frozen=True)
class Sample:
    sample: typing.Any
    def __call__(self, key):
        return self.sample(key)
"""
    code = """@dataclasses.dataclass
        class Local:
            factor: "float" = 1.0
        factor = Local().factor * pickle.loads(pickle.dumps(Table())).factor()"""
    for value in (2, 5):
        helper.write_text(f"class Table:\n    def factor(self):\n        return {value}\n")
        importlib.import_module("pickled_tables")
        assert latency_of(tmp_path, more=more, code=code, made=made) == value
    forget("pickled_tables")


@pytest.mark.parametrize("change", ["edit", "delete", "package", "delete all", "another"])
def test_functions_import_modules_as_they_were_whatever_became_of_the_files(tmp_path, change):
    lab = tmp_path / "lab_later"
    lab.mkdir()
    (lab / "__init__.py").touch()
    (lab / "fast.py").write_text("BEGIN = 2\n")
    more = "def late():\n    from lab_later.fast import BEGIN\n    return BEGIN\n"
    spec = write(tmp_path, more=more)
    late = kinds.load(spec).parts.get("policy", "first_ones").function.__globals__["late"]
    if change == "edit":
        (lab / "fast.py").write_text("BEGIN = 7\n")
    elif change == "delete all":
        shutil.rmtree(lab)
    elif change == "another":
        (tmp_path / "lab_later.py").write_text("")
        lab.rename(tmp_path / "lab_before")
    else:
        (lab / "fast.py").unlink()
    if change == "package":
        (lab / "fast").mkdir()
        (lab / "fast" / "__init__.py").write_text("BEGIN = 7\n")
    assert late() == 2
    if change in ("edit", "package"):
        late = kinds.load(spec).parts.get("policy", "first_ones").function.__globals__["late"]
        assert late() == 7


def test_a_library_that_the_session_imports_later_may_have_the_name_of_a_helper(tmp_path, monkeypatch):
    library = tmp_path / "site-packages"
    library.mkdir()
    (library / "named_alike.py").write_text("BEGIN = 7\n")
    (tmp_path / "named_alike.py").write_text("BEGIN = 2\n")
    monkeypatch.syspath_prepend(str(library))
    more = "import named_alike\ndef late():\n    import named_alike\n    return named_alike.BEGIN\n"
    spec = write(tmp_path, more=more)
    late = kinds.load(spec).parts.get("policy", "first_ones").function.__globals__["late"]
    of_session = importlib.import_module("named_alike")
    with kinds.load(spec).parts.get("policy", "first_ones").surroundings():
        assert sys.modules["named_alike"].BEGIN == 2
    assert late() == 2 and sys.modules.pop("named_alike") is of_session


def test_a_module_that_a_function_imports_later_is_no_change(tmp_path):
    (tmp_path / "later_folder").mkdir()
    (tmp_path / "later_folder" / "fast.py").write_text("BEGIN = 2\n")
    more = "def late():\n    from later_folder.fast import BEGIN\n    return BEGIN\n"
    more += f"with open({str(tmp_path / 'executed')!r}, 'a') as file:\n    file.write('x')"
    spec = write(tmp_path, more=more)
    for _ in range(3):
        late = kinds.load(spec).parts.get("policy", "first_ones").function.__globals__["late"]
        assert late() == 2
    assert (tmp_path / "executed").read_text() == "x"


def test_the_order_of_files_counts(tmp_path):
    """Two files may import one helper that registers a part, and change it."""
    for name in ("one", "two"):
        write(tmp_path, file=f"{name}.py", use="[]")
    (tmp_path / "two.py").write_text("")
    found = [identities(write(tmp_path, use=f'["{a}.py", "{b}.py"]', file="three.py")) for a, b in ORDERS]
    assert not {*found[0]} & {*found[1]}


@pytest.mark.parametrize("way", ["package", "each other"])
def test_the_module_that_is_executed_counts(tmp_path, way):
    """Although both modules are files of both studies."""
    lab = tmp_path / "lab_of_two"
    lab.mkdir()
    (lab / "__init__.py").write_text("__all__ = ['one', 'two']\n" if way == "package" else "")
    for start, (name, other) in enumerate(ORDERS):
        more = f"def late():\n    from lab_of_two import {other}\n" if way == "each other" else ""
        write(lab, start, more=more, file=f"{name}.py")
    found, names, spec = [], [], tmp_path / "spec.toml"
    for name, _ in ORDERS:
        spec.write_text((lab / "spec.toml").read_text().replace("mine.py", f"lab_of_two.{name}"))
        layer = kinds.load(spec).parts
        assert layer.sources[0].files.keys() == {f"lab_of_two/{one}.py" for one in ("__init__", "one", "two")}
        found.append(start_of(layer))
        names.append(identities(spec))
    assert found == [0, 1] and not {*names[0]} & {*names[1]}


def test_functions_that_a_module_adds_to_builtins_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(builtins, "added_number", None, raising=False)
    (tmp_path / "adds_to_builtins.py").write_text("import builtins\nbuiltins.added_number = lambda: 3\n")
    spec = write(tmp_path, more="import adds_to_builtins\ndef late():\n    return added_number()\n")
    assert kinds.load(spec).parts.get("policy", "first_ones").function.__globals__["late"]() == 3


def test_an_import_of_the_session_that_failed_does_not_matter(tmp_path, monkeypatch):
    """Python forgets the package, but not the folder without `__init__.py` that it had imported."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "failed" / "models").mkdir(parents=True)
    (tmp_path / "failed" / "models" / "net.py").write_text("BEGIN = 2\n")
    (tmp_path / "failed" / "__init__.py").write_text("import failed.models.net\n1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        importlib.import_module("failed")
    assert "failed.models" in sys.modules and "failed" not in sys.modules
    before = {*sys.modules}
    (tmp_path / "failed" / "__init__.py").write_text("from failed.models.net import BEGIN\n")
    spec = write(tmp_path / "study", "BEGIN", more="from failed import BEGIN")
    assert start_of(kinds.load(spec).parts) == 2
    assert before <= sys.modules.keys()
    forget("failed")


def test_a_module_of_use_is_found_without_executing_its_package_for_the_session(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "found_package"
    package.mkdir()
    (package / "__init__.py").write_text("from . import models\n")
    (package / "models.py").write_text((write(tmp_path / "study").parent / "mine.py").read_text())
    spec = write(tmp_path / "study", use='["found_package.models"]')
    assert kinds.load(spec).parts.get("policy", "first_ones")
    assert "first_ones" not in registered_parts().of("policy")
    assert not any(name.startswith("found_package") for name in sys.modules)


HOOK = """
import sys
from importlib.machinery import PathFinder, SourceFileLoader
class Loader(SourceFileLoader):
    def source_to_code(self, data, path, **options):
        return super().source_to_code(data.replace(b"UNHOOKED", b"HOOKED"), path, **options)
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        found = PathFinder.find_spec(name, path, target)
        if name.startswith("hooked_"):
            found.loader = Loader(name, found.origin)
            return found
"""


@pytest.mark.parametrize("by", ["session", "file"])
def test_modules_that_a_hook_changes_are_the_studys_own(tmp_path, monkeypatch, by):
    """As those of jaxtyping and beartype, which insert checks of types."""
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    more = HOOK + "sys.meta_path.insert(0, Finder)\n"
    if by == "session":
        exec(more, {"__name__": "hook"})
        more = ""
    (tmp_path / "hooked_core.py").write_text(
        "def begin():\n    from hooked_late import HOOKED\n    return HOOKED\n"
    )
    spec = write(tmp_path, "BEGIN", more=f"{more}import hooked_core\nBEGIN = hooked_core.begin()")
    digests = set()
    for begin in (1, 2):
        (tmp_path / "hooked_late.py").write_text(f"UNHOOKED = {begin}\n")
        layer = kinds.load(spec).parts
        assert start_of(layer) == begin
        digests.add(layer.sources[0].digest)
    assert len(digests) == 2 and not {"hooked_core", "hooked_late"} & sys.modules.keys()


def test_modules_are_in_place_until_the_last_thread_has_left(tmp_path):
    spec = write(tmp_path, more="import kept_in_place")
    (tmp_path / "kept_in_place.py").touch()
    in_place = kinds.load(spec).parts.get("policy", "first_ones").surroundings
    entered, left, found = threading.Event(), threading.Event(), []

    def stay():
        with in_place():
            entered.set()
            left.wait()
            found.append("kept_in_place" in sys.modules)

    with in_place():
        thread = threading.Thread(target=stay)
        thread.start()
        entered.wait()
    left.set()
    thread.join()
    assert found == [True] and "kept_in_place" not in sys.modules


@pytest.mark.parametrize("when", ["head", "call"])
def test_threads_of_the_session_import_their_own_modules(tmp_path, monkeypatch, when):
    """Such as a thread that draws a live plot. Its modules are no files of the study."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "live_plot.py").touch()
    go, done = threading.Event(), threading.Event()

    def plot():
        go.wait()
        importlib.import_module("live_plot")
        done.set()

    def wait():
        go.set()
        done.wait(30)

    thread = threading.Thread(target=plot)
    thread.start()
    monkeypatch.setattr(builtins, "wait_for_the_plot", wait, raising=False)
    head = "wait_for_the_plot()" if when == "head" else ""
    spec = write(tmp_path / "study", more=f"{head}\ndef late():\n    wait_for_the_plot()\n")
    part = kinds.load(spec).parts.get("policy", "first_ones")
    with part.surroundings():
        part.function.__globals__["late"]()
    thread.join()
    assert kinds.load(spec).parts.sources[0].files.keys() == {"mine.py"}
    assert sys.modules.pop("live_plot").__file__ == str(tmp_path / "live_plot.py")


def test_a_thread_loads_a_file_without_the_path_of_another(tmp_path):
    first = write(tmp_path / "first")
    (tmp_path / "first" / "of_the_first.py").touch()
    more = "try:\n    import of_the_first\n    BEGIN = 1\nexcept ImportError:\n    BEGIN = 2"
    second, found, begun = write(tmp_path / "second", "BEGIN", more=more), [], threading.Event()

    def load():
        begun.set()
        found.append(start_of(kinds.load(second).parts))

    with kinds.load(first).parts.get("policy", "first_ones").surroundings():
        assert str(tmp_path / "first") in sys.path
        thread = threading.Thread(target=load)
        thread.start()
        begun.wait()
        thread.join(timeout=0.5)
    thread.join()
    assert found == [2]


def test_threads_of_a_study_that_a_file_plays_import_their_modules(tmp_path):
    """XLA calls a function of the study in a thread of its own, and the file waits for the study."""
    outer = write(tmp_path / "outer", more="import of_the_outer")
    (tmp_path / "outer" / "of_the_outer.py").touch()
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "of_the_inner.py").write_text("BEGIN = 2\n")
    inner = write(
        tmp_path / "inner", more="def late():\n    from of_the_inner import BEGIN\n    return BEGIN\n"
    )
    late = kinds.load(inner).parts.get("policy", "first_ones").function.__globals__["late"]
    found = []
    thread = threading.Thread(target=lambda: found.append(late()))
    with kinds.load(outer).parts.get("policy", "first_ones").surroundings():
        with visits.lending():
            thread.start()
            thread.join(timeout=30)
        assert found == [2] and "of_the_outer" in sys.modules and "of_the_inner" not in sys.modules
    assert late() == 2 and not visits._STAYS
    with kinds.load(outer).parts.get("policy", "first_ones").surroundings():  # now the module is there
        thread = threading.Thread(target=lambda: found.append(late()), daemon=True)
        thread.start()
        thread.join(timeout=30)
        assert found == [2, 2]


def test_modules_in_archives_are_refused(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as archive:
        archive.writestr("packed_speeds.py", "BEGIN = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path / "packed.zip"))
    spec = write(tmp_path, 0, more="import packed_speeds")
    with pytest.raises(
        SpecError, match=r"mine\.py: the module packed_speeds is in an archive: .*packed\.zip"
    ):
        kinds.load(spec)


@pytest.mark.parametrize(
    "way", ["the package adds a folder", "the function adds a folder", "computed", "compiled"]
)
def test_a_module_that_only_a_function_finds_is_refused(tmp_path, way):
    """The identity would not cover it, and a later study of the session would use its old content."""
    code = {
        "the package adds a folder": "from lab_late import fast",
        "the function adds a folder": f"sys.path.append({str(tmp_path / 'lab_late/more')!r}); import fast",
        "computed": "importlib.import_module('.'.join(('lab_late', 'more', 'fast')))",
        "compiled": "import xxlimited",
    }[way]
    (tmp_path / "lab_late" / "more").mkdir(parents=True)
    adds = "__path__.append(__path__[0] + '/more')\n" if way == "the package adds a folder" else ""
    (tmp_path / "lab_late" / "__init__.py").write_text(adds)
    (tmp_path / "lab_late" / "more" / "fast.py").write_text("BEGIN = 2\n")
    if way == "compiled":
        found = importlib.util.find_spec("xxlimited")
        if found is None or not found.has_location:
            pytest.skip("Python has no module xxlimited")
        shutil.copy(found.origin, tmp_path)
    spec = write(tmp_path, more=f"import importlib, sys, lab_late\ndef late():\n    {code}\n")
    part, wrong = kinds.load(spec).parts.get("policy", "first_ones"), "a function imports this module, but"
    with pytest.raises(PartError, match=rf"(fast|xxlimited)\..*: {wrong}"), part.surroundings():
        part.function.__globals__["late"]()
    assert not {"fast", "lab_late", "xxlimited"} & sys.modules.keys()


@pytest.mark.parametrize(
    "kind",
    [
        "numpy.random.default_rng",
        pytest.param("numpy.random.RandomState", marks=pytest.mark.slow),
        pytest.param("random.Random", marks=pytest.mark.slow),
    ],
)
def test_functions_must_not_draw_from_a_generator_of_the_module(tmp_path, kind):
    """It would go on where the last study ended, and a resumed study would begin anew."""
    one = "RNG.gauss(0, 1)" if kind == "random.Random" else "RNG.normal()"
    more = f"import numpy, random\nRNG = {kind}(3)\nFACTOR = 1 + 0 * {one}\n"
    for _ in range(2):
        assert latency_of(tmp_path, more=more, code="factor = FACTOR") == 1
        assert latency_of(tmp_path, more=more, code="factor = 2 + 0 * random.Random(3).random()") == 2
    with pytest.raises(SpecError, match=r"law\.py: RNG: a function has changed this random generator"):
        latency_of(tmp_path, more=more, code=f"factor = 1 + 0 * {one}")


def test_generators_of_any_class_may_be_at_the_head(tmp_path):
    """Also those without a state, and those of a class of one's own."""
    more = "import random\nclass Own(random.Random):\n    pass\nRNG, SYSTEM = Own(3), random.SystemRandom()\n"
    assert latency_of(tmp_path, more=more, code="factor = 2") == 2
    with pytest.raises(SpecError, match="RNG: a function has changed this random generator"):
        latency_of(tmp_path, more=more, code="factor = 2 + 0 * RNG.gauss(0, 1)")


def test_functions_must_not_draw_from_a_generator_of_a_module_that_only_they_import(tmp_path):
    """Neither in the first call nor in later ones."""
    (tmp_path / "late_generator.py").write_text("import random\nRNG = random.Random(3)\nRNG.gauss(0, 1)\n")
    more = "def late():\n    from late_generator import RNG\n    return RNG.gauss(0, 1)\n"
    part = kinds.load(write(tmp_path, more=more)).parts.get("policy", "first_ones")
    for _ in range(2):
        with pytest.raises(PartError, match=r"late_generator\.py: RNG: a function"), part.surroundings():
            part.function.__globals__["late"]()


def test_functions_may_ask_for_modules_that_they_do_not_import(tmp_path):
    (tmp_path / "asked_for.py").touch()
    more = "import importlib.util\ndef late():\n    return importlib.util.find_spec('asked_' + 'for')\n"
    part = kinds.load(write(tmp_path, more=more)).parts.get("policy", "first_ones")
    with part.surroundings():
        assert part.function.__globals__["late"]().origin == str(tmp_path / "asked_for.py")


@pytest.mark.parametrize("file", ["ray.py", "wandb/__init__.py"])
def test_a_helper_with_the_name_of_a_library_that_this_package_may_import_is_refused(tmp_path, file):
    """Whether or not the library is imported or installed: this package would import the helper."""
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("BEGIN = 2\n")
    name = file.partition("/")[0].removesuffix(".py")
    with pytest.raises(
        SpecError, match=rf"mine\.py: {file}: pausejax would import this file instead of the library {name}\."
    ):
        kinds.load(write(tmp_path))


def test_a_module_of_use_may_be_installed_beside_libraries(tmp_path, monkeypatch):
    library = tmp_path / "site-packages"
    write(library, file="installed_parts.py")
    (library / "ray").mkdir()
    (library / "ray" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(library))
    layer = kinds.load(write(tmp_path / "study", use='["installed_parts"]')).parts
    assert layer.sources[0].files.keys() == {"installed_parts.py"}
    assert pickle.loads(cloudpickle.dumps(layer)).get("policy", "first_ones")
    assert "first_ones" not in registered_parts().of("policy")


def test_lazy_modules_are_not_executed(tmp_path, monkeypatch):
    """Neither those of the session nor those of a file, as Python's documentation makes them."""
    recipe = """
import importlib.util, sys
def lazy(name):
    spec = importlib.util.find_spec(name)
    spec.loader = importlib.util.LazyLoader(spec.loader)
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
"""
    (tmp_path / "lazy_session.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    exec(f"{recipe}lazy('lazy_session')", {})
    (tmp_path / "lazy_one.py").write_text("from lazy_two import BEGIN\n")
    spec = write(
        tmp_path / "study", more=f"{recipe}one = lazy('lazy_one')\ndef late():\n    return one.BEGIN"
    )
    for begin in (1, 2):
        (tmp_path / "lazy_two.py").write_text(f"BEGIN = {begin}\n")
        layer = kinds.load(spec).parts
        assert layer.get("policy", "first_ones").function.__globals__["late"]() == begin
        assert layer.sources[0].digests.keys() == {"lazy_one", "lazy_two"}
    lazy = sys.modules.pop("lazy_session")
    with pytest.raises(ZeroDivisionError):
        _ = lazy.BEGIN


def test_a_compiled_module_that_has_changed_is_refused(tmp_path, monkeypatch):
    """Python would go on with the old one."""
    monkeypatch.setattr(source, "_COMPILED", {})
    found = importlib.util.find_spec("xxlimited")  # an example that is installed with most Pythons
    if found is None or not found.has_location:
        pytest.skip("Python has no module xxlimited")
    compiled = shutil.copy(found.origin, tmp_path)
    spec = write(tmp_path, more="import xxlimited")
    for _ in range(2):
        assert compiled.endswith(tuple(kinds.load(spec).parts.sources[0].files.keys() - {"mine.py"}))
        write(tmp_path, more="import xxlimited\n# a note")
    with open(compiled, "ab") as file:
        file.write(b"\0")
    with pytest.raises(SpecError, match=r"xxlimited.* has changed\. .*: restart Python"):
        kinds.load(spec)
