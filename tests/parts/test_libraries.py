"""Parts of installed libraries that files of `use` import or register."""

import importlib
import pickle
import sys
import threading

import cloudpickle
import numpy as np
import pytest

import pausejax
from pausejax import kinds, parts
from pausejax.parts import PartError, extensions
from pausejax.study.spec import SpecError

from .test_extensions import identities, write

SPARE = """
import jax.numpy as jnp
import pausejax
@pausejax.quantity
def spare(snapshot):
    return jnp.float32({value})
def constant(value, reduce="last"):
    @pausejax.quantity(reduce=reduce)
    def made(snapshot):
        return jnp.float32(value + {value})
"""


@pytest.fixture
def library(tmp_path, monkeypatch, own_parts):
    """A function that installs a library with the quantity `spare`, as if Python were started again."""
    folder = tmp_path / "lib" / "site-packages"
    folder.mkdir(parents=True)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # old bytecode would be executed

    def install(value):
        (folder / "spare_library.py").write_text(SPARE.format(value=value))
        parts.registered_parts()._own.pop(("quantity", "spare"), None)
        sys.modules.pop("spare_library", None)
        extensions._LOADED.clear()

    yield install
    sys.modules.pop("spare_library", None)
    extensions._LOADED.clear()


def study(folder, start=0, *, quantity="spare", more="import spare_library", **options):
    spec = write(folder, start, more=more, **options)
    spec.write_text(f"quantities = {[quantity] if quantity else []}\n{spec.read_text()}")
    return spec


def test_a_library_keeps_its_parts_when_another_file_imports_it(tmp_path, library):
    """Python executes the library's decorators only once."""
    library(1)
    one, two = study(tmp_path / "one"), study(tmp_path / "two", file="other.py", use='["other.py"]')
    first = identities(one)
    assert identities(two) and identities(one) == first
    assert identities(study(tmp_path / "one", 1)) != first
    both = write(tmp_path / "both", more="import spare_library", use='["mine.py", "more.py"]')
    (tmp_path / "both" / "more.py").write_text("import spare_library\n")
    both.write_text(f'quantities = ["spare"]\n{both.read_text()}')
    assert identities(both)


def test_a_librarys_file_with_a_part_counts_whoever_imported_it_first(tmp_path, library):
    spec, found = study(tmp_path), []
    for value, by_session in ((1, False), (1, True), (2, False), (2, True)):
        library(value)
        if by_session:
            importlib.import_module("spare_library")
        found.append(identities(spec))
    assert found[0] == found[1] != found[2] == found[3]


@pytest.mark.parametrize("quantity", ["made", ""])
@pytest.mark.slow
def test_a_librarys_function_that_a_file_registers_counts_with_its_file(tmp_path, library, quantity):
    """If the study uses the part. Each file has a part of its own, with its own arguments."""
    more = 'import spare_library\nspare_library.constant({}, "{}")'
    specs = [
        study(tmp_path / f"{how}{value}", quantity=quantity, more=more.format(value, how))
        for value, how in ((1, "last"), (1, "mean"), (2, "last"))
    ]
    library(1)
    first = [identities(spec) for spec in specs]
    assert len(set(map(str, first))) == 3 == len({kinds.load(spec).parts for spec in specs})
    layers = [kinds.load(spec).parts for spec in specs]
    if quantity:
        assert [layer.get("quantity", "made").notes["reduce"] for layer in layers] == ["last", "mean", "last"]
    parts.registered_parts()._own.pop(("quantity", "spare"))
    sent = cloudpickle.dumps(layers[0])
    assert pickle.loads(sent).get("quantity", "made")
    library(2)
    again = [identities(spec) for spec in specs]
    assert all((one == other) == (not quantity) for one, other in zip(first, again, strict=True))
    with pytest.raises(PartError, match=r"made: .*spare_library\.py, .* has another content on this"):
        pickle.loads(sent)


def test_a_changed_closure_of_a_librarys_part_makes_another_program(library):
    library(1)
    value = np.zeros(1)
    importlib.import_module("spare_library").constant(value)
    part = parts.registered_parts().get("quantity", "made")
    first = parts.bind(part, {})
    assert first == parts.bind(part, {})
    value += 1
    assert first != parts.bind(part, {})


def test_a_helper_that_a_function_imports_registers_no_parts(tmp_path, own_parts):
    """Neither for other studies nor for the session. Another study may have another helper of this name."""
    helper = "import pausejax\n@pausejax.quantity\ndef spare(seen):\n    return {}\n"
    for number in (1, 2):
        folder = tmp_path / str(number)
        spec = write(folder, more="def late():\n    import spare_helper\n    return spare_helper.spare(0)")
        (folder / "spare_helper.py").write_text(helper.format(number))
        late = kinds.load(spec).parts.get("policy", "first_ones").function.__globals__["late"]
        assert float(late()) == number
        assert "spare" not in parts.registered_parts().of("quantity")
    with pytest.raises(SpecError, match="spare"):
        kinds.load(study(tmp_path / "3", more=""))


def test_a_plan_leaves_out_the_sessions_parts_without_a_digest(tmp_path, own_parts):
    """A study that uses such a part is refused."""
    lock = threading.Lock()

    @pausejax.quantity
    def locked(snapshot):
        with lock:
            return snapshot.latency.max()

    layer = kinds.load(write(tmp_path)).parts
    for _ in range(2):
        assert pickle.loads(cloudpickle.dumps(layer)).get("policy", "first_ones")
