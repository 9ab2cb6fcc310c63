"""What the identity of a run knows of parts that a notebook or script defines: all that they reach."""

import collections.abc
import dataclasses
import importlib
import subprocess
import sys
import types
from pathlib import Path

import jax
import numpy as np
import pytest

import pausejax
from pausejax import kinds, parts
from pausejax.federated import build
from pausejax.parts import extensions, traces
from pausejax.parts.digest import digest_of
from pausejax.study.plan import make_plan
from pausejax.study.spec import SpecError

ROOT = Path(__file__).resolve().parents[2]
BEFORE = """
import collections, dataclasses, enum, functools, typing
import flax.linen as nn, jax, jax.numpy as jnp, numpy as np, optax
from pausejax import parts
"""
QUANTITY = """
@parts.quantity
def noted(snapshot):
    '''A number.'''
    return jnp.float32(0) + {reads}
"""
CHANGES = {
    "a number": ("C = {v}", "C"),
    "a number of many digits": ("C = 2**20000 + {v}", "C % 7"),
    "a word": ("C = 'a{v}'", "len(C)"),
    "a table": ("C = {{'a': [1, (2, {v})]}}", "C['a'][0]"),
    "a set": ("C = {{'a', 'b', 'c', 'd', '{v}'}}", "len(C)"),
    "an array": ("C = np.arange(3.0) * {v}", "C.sum()"),
    "an array of JAX": ("C = jnp.arange(3.0) * {v}", "C.sum()"),
    "a key": ("C = jax.random.key({v})", "jax.random.normal(C)"),
    "a helper": ("def C(x):\n    return x * {v}", "C(2)"),
    "a constant in a helper": ("D = {v}\ndef C(x):\n    return x * D", "C(2)"),
    "a helper of a helper": ("def D(x):\n    return x * {v}\ndef C(x):\n    return D(x)", "C(2)"),
    "a helper that calls itself": ("def C(x):\n    return {v} if x < 1 else C(x - 1)", "C(2)"),
    "a jitted helper": ("@jax.jit\ndef C(x):\n    return x * {v}", "C(2.0)"),
    "a vectorized helper": ("C = jax.vmap(lambda x: x * {v})", "C(jnp.ones(2)).sum()"),
    "a gradient": ("C = jax.grad(lambda x: x**2 * {v})", "C(1.0)"),
    "a cached helper": ("@functools.lru_cache\ndef C(x):\n    return x * {v}", "C(2)"),
    "a partial": ("C = functools.partial(max, {v})", "C(0)"),
    "a closure": ("def make(n):\n    return lambda x: x * n\nC = make({v})", "C(2)"),
    "a default": ("def C(x, *, by={v}):\n    return x * by", "C(2)"),
    "a closure of a library": ("C = optax.scale({v})", "C.update(jnp.ones(1), None)[0].sum()"),
    "a default that a library binds": (
        "C = jax.nn.initializers.normal(0.5, [0, jnp.float32, jnp.bfloat16][{v}])",
        "C(jax.random.key(0), (2,)).sum()",
    ),
    "a function in C of another module": ("import cmath, math\nC = [cmath, math][{v} - 1].cos", "C(1).real"),
    "the functions of a pytree": (
        "class C:\n    pass\njax.tree_util.register_pytree_node(C, lambda c: ((), {v}), lambda aux, _: C())",
        "jax.tree.structure(C()).num_leaves",
    ),
    "the fields of a pytree": (
        "@dataclasses.dataclass\nclass C:\n    a: int = 1\n    b: int = 2\n"
        "jax.tree_util.register_dataclass(C, ['ab'[{v} - 1]], ['ba'[{v} - 1]])",
        "jax.tree.leaves(C())[0]",
    ),
    "a set of a class that holds it": (
        "class C:\n    kinds = set()\n    def __init_subclass__(cls):\n        C.kinds.add(cls)\n"
        "class D(C):\n    at = {v}\nclass E(C):\n    at = 7",
        "sum(kind.at for kind in C.kinds)",
    ),
    "names of an index": (
        "import pandas as pd\n"
        "D = pd.MultiIndex.from_tuples([(1, 2), (2, 1)], names=list(['pq', 'qp'][{v} - 1]))\n"
        "C = pd.DataFrame(dict(a=[1, 5]), index=D)",
        "float(C.xs(1, level='p')['a'].sum())",
    ),
    "a lambda of a library": (
        "from flax.linen import module\nC = [module.tuple_reduce, module.tuple_init][{v} - 1]",
        "(0 if C else 1)",
    ),
    "an attribute that a pickle leaves out": (
        "class B:\n    def __init__(self, at):\n        self.at = at\n"
        "    def __reduce__(self):\n        return B, (0,)\nC = B({v})",
        "C.at",
    ),
    "the library of an array": ("C = [np, jnp][{v} - 1].arange(3, dtype='int32')", "(C / 2).sum()"),
    "the removal of a property": (
        "class C:\n    at = property(lambda self: 5, None, [None, lambda self: 2][{v} - 1])",
        "C().at",
    ),
    "a global or an attribute": (
        "abs = 1\ndef C(x):\n    return abs\n" + "if {v} == 2:\n    C.abs = 1\n    del abs",
        "C(1)",
    ),
    "another function of a library": ("from numpy import {f} as C", "C(1.0)"),
    "a method": ("class C:\n    def of(self):\n        return {v}", "C().of()"),
    "an attribute of a class": ("class C:\n    at = {v}", "C.at"),
    "a base": ("class B:\n    at = {v}\nclass C(B):\n    pass", "C.at"),
    "a property": ("class C:\n    @property\n    def at(self):\n        return {v}", "C().at"),
    "an object": ("class B:\n    pass\nC = B()\nC.at = {v}", "C.at"),
    "a data class": ("@dataclasses.dataclass\nclass B:\n    at: int\nC = B({v})", "C.at"),
    "a named tuple": ("class B(typing.NamedTuple):\n    at: int\nC = B({v})", "C.at"),
    "an enumeration": ("class C(enum.Enum):\n    A = {v}", "C.A.value"),
    "a module of flax": (
        "class C(nn.Module):\n    @nn.compact\n    def __call__(self, x):\n        return x * {v}",
        "C().apply({{}}, 1.0)",
    ),
    "an index": ("import pandas as pd\nC = pd.Series([1.0, 2.0], index=[{v}, 7])", "C[7]"),
    "a mask": ("C = np.ma.masked_array([1.0, 2.0], [{v} == 1, False])", "C.sum()"),
    "a masked number": ("C = (np.ma.masked, {v})", "C[1]"),
    "a variable": ("import xarray as xr\nC = xr.Dataset({{'a': ('x', [{v}, 7])}})", "C.a.sum().item()"),
    "a coordinate": (
        "import xarray as xr\nC = xr.DataArray([1.0, 2.0], coords={{'x': [{v}, 7]}})",
        "C.sel(x=7).item()",
    ),
    "an index of times": (
        "import pandas as pd\nC = pd.Series([1.0, 2.0], index=pd.date_range('202{v}', periods=2))",
        "C[C.index[0]] + C.sum()",
    ),
    "an attribute of a function": ("def C(x):\n    return x * C.at\nC.at = {v}", "C(2)"),
    "a private attribute of a function": ("def C(x):\n    return x * C._at\nC._at = {v}", "C(2)"),
    "an attribute of a vectorized function": (
        "C = jax.vmap(lambda x: x * C.at)\nC.at = {v}",
        "C(jnp.ones(2)).sum()",
    ),
    "a private attribute of a jitted function": (
        "@jax.jit\ndef C(x):\n    return x * C._at\nC._at = {v}",
        "C(2.0)",
    ),
    "an attribute of a property": (
        "class B(property):\n    def __get__(self, one, kind=None):\n        return self.at\n"
        "class C:\n    at = B()\nvars(C)['at'].at = {v}",
        "C().at",
    ),
    "the order of attributes": (
        "class C:\n    pass\nfor key in list(['ab', 'ba'][{v} - 1]):\n    setattr(C, key, ord(key))",
        "[one for key, one in vars(C).items() if key in 'ab'][0]",
    ),
    "a hash": ("class C:\n    def __hash__(self):\n        return {v}", "hash(C())"),
    "a table of words and numbers": (
        "C = np.array([(1.0, 'a' * {v})], dtype=[('x', 'f4'), ('y', 'O')])",
        "len(C['y'][0])",
    ),
    "subclasses": (
        "class B:\n    pass\nclass D(B):\n    at = {v}\ndef C():\n    return B.__subclasses__()[0].at",
        "C()",
    ),
    "an array of words": ("C = np.array(['a' * 40 + '{v}'], np.dtypes.StringDType())", "float(C[0][-1])"),
    "a weak type": ("C = jnp.asarray(1.1, *([jnp.float32] if {v} == 1 else []))", "2.0 * C.weak_type"),
    "a deque": ("C = collections.deque([1, {v}])", "C[0]"),
    "a default of a table": ("C = collections.defaultdict(lambda: {v})", "C.default_factory()"),
    "a table of one's own": ("class B(dict):\n    def at(self):\n        return {v}\nC = B()", "C.at()"),
    "a table with attributes": (
        "class B(dict):\n    def __getattr__(self, key):\n        return self.setdefault(key, B())\n"
        "C = B(at={v})\nKEPT = C",
        "C.at",
    ),
    "a slot": ("class B(set):\n    __slots__ = ('at',)\nC = B()\nC.at = {v}", "C.at"),
    "an attribute of a partial": ("C = functools.partial(max, 1)\nC.at = {v}", "C.at"),
    "categories": (
        "import pandas as pd\nC = pd.Series(pd.Categorical(['a'], ['a', 'b'] if {v} == 1 else ['b', 'a']))",
        "C.cat.codes[0].item()",
    ),
    "categories of an index": (
        "import pandas as pd\nD = pd.CategoricalIndex(['a', 'b'], list(['ab', 'ba'][{v} - 1]))\n"
        "C = pd.Series([1.0, 2.0], D)",
        "float(C.sort_index().iloc[0])",
    ),
    "categories of a level": (
        "import pandas as pd\nD = pd.CategoricalIndex(['a', 'b'], list(['ab', 'ba'][{v} - 1]))\n"
        "C = pd.Series([1.0, 2.0], pd.MultiIndex.from_arrays([D, [1, 1]]))",
        "float(C.sort_index().iloc[0])",
    ),
    "a bare index": (
        "import pandas as pd\nD = pd.CategoricalIndex(['a', 'b'], list(['ab', 'ba'][{v} - 1]))\n"
        "C = pd.MultiIndex.from_arrays([D, [1, 1]])",
        "len(C.sort_values()[0][0])",
    ),
    "shared weights": (
        "C = [[nn.Dense(3)] * 2, [nn.Dense(3) for _ in range(2)]][{v} - 1]",
        "len({{id(one) for one in C}})",
    ),
    "shared variables": (
        "from flax import nnx\nD = [nnx.Param(jnp.ones(2)) for _ in range(2)]\nC = D[0], D[{v} - 1]",
        "len({{id(one) for one in C}})",
    ),
    "a sentinel": ("D = [object(), object()]\nC = D[{v} - 1]", "(0 if C is D[0] else 1)"),
    "a sentinel of one's own": (
        "class B:\n    pass\nD = [B(), B()]\nC = D[{v} - 1]",
        "(0 if C is D[0] else 1)",
    ),
    "a variable of flax": (
        "from flax import nnx\nC = (nnx.Param if {v} == 1 else nnx.BatchStat)(jnp.ones(2))",
        "C[...].sum()",
    ),
    "a set of one's own": ("class B(set):\n    at = {v}\nC = B()", "C.at"),
    "an attribute of a set": ("class B(set):\n    pass\nC = B()\nC.at = {v}", "C.at"),
    "an array of one's own": ("class B(np.ndarray):\n    at = {v}\nC = np.ones(2).view(B)", "C.at"),
    "another class of arrays": (
        "C = np.ones(2)\nif {v} == 2:\n    C = C.view(np.recarray)",
        "C.sum().item()",
    ),
    "a metaclass": (
        "class M(type):\n    def at(cls):\n        return {v}\nclass C(metaclass=M):\n    pass",
        "C.at()",
    ),
    "a data class that Python makes": (
        "C = dataclasses.make_dataclass('C', [('at', int, dataclasses.field(default={v}))])",
        "C().at",
    ),
    "a class behind a class of flax": (
        "class B(nn.Module):\n    @nn.compact\n    def __call__(self, x):\n        return x * {v}\n"
        "C = nn.remat(B)",
        "C().apply({{}}, 1.0)",
    ),
    "an argument of a class of flax": (
        "class B(nn.Module):\n    @nn.compact\n    def __call__(self, x, _):\n        return x * 2, None\n"
        "C = nn.scan(B, length={v})",
        "C().apply({{}}, 1.0, None)[0]",
    ),
    "a private attribute of a wrapper": (
        "class B:\n    def __init__(self, f):\n        functools.update_wrapper(self, f)\n"
        "        self._at = {v}\n    def __call__(self, x):\n        return self._at * x\n"
        "C = B(lambda x: x)",
        "C(2)",
    ),
    "a flag": ("class C(enum.Flag):\n    A = {v}\n    B = 4", "(C.A | C.B).value"),
    "a function for each type": (
        "@functools.singledispatch\ndef C(x):\n    return 0\n@C.register\ndef _(x: int):\n    return {v}",
        "C(1)",
    ),
    "a distribution of SciPy": ("import scipy.stats\nC = scipy.stats.norm(scale={v})", "C.ppf(0.9)"),
    "a seed of SciPy": (
        "import scipy.stats\nC = scipy.stats.norm()\nC.random_state = np.random.RandomState({v})",
        "C.std()",
    ),
    "a name": ("import pandas as pd\nC = pd.Series([1.0], name='{v}')", "len(C.name)"),
    "a constant in a query": (
        "import pandas as pd\nC = pd.DataFrame(dict(a=[1.0, 2.0, 3.0]))\nLIMIT = {v}",
        "len(C.query('a > @LIMIT'))",
    ),
    "a constant in a query that stands elsewhere": (
        "import pandas as pd\nB = pd.DataFrame(dict(a=[1.0, 2.0, 3.0]))\nLIMIT = {v}\n"
        "FAST = ['a > ', '@LIMIT']\ndef C():\n    return B.query(''.join(FAST))",
        "len(C())",
    ),
    "the members of a set of an enumeration": (
        "class B(str, enum.Enum):\n    A, D, E = 'a', 'd', 'e'\nC = set(list(B)[: {v} + 1])",
        "sum(len(one.value) for one in C)",
    ),
    "which of two objects stands in a place": (
        "class B:\n    pass\nA, D = B(), B()\nC = [A, D, [A, D][{v} - 1]]",
        "int(C[0] is C[2])",
    ),
    "an object that only a set holds": (
        "class B:\n    def __init__(self, at):\n        self.at = at\nC = {{(B({v}), B(3))}}",
        "sum(one.at for pair in C for one in pair)",
    ),
    "the first constant of a function": ("def C():\n    'a{v}'\n    return len('a{v}' + 'b' * {v})", "C()"),
    "the name of a function": (
        "def low(x):\n    return x\ndef high(x):\n    return x\nC = [low, high][{v} - 1]",
        "dict(low=1, high=2)[C.__name__]",
    ),
    "the initializer of one of two bases": (
        "class A:\n    def __init__(self):\n        self.at = 1\n"
        "class B:\n    def __init__(self):\n        self.at = 2\n"
        "class C(A, B):\n    pass\nif {v} == 2:\n    C.__init__ = B.__init__",
        "C().at",
    ),
    "the type of an attribute": (
        "class C:\n    at: [int, float][{v} - 1]",
        "C.__annotations__['at'](2.5)",
    ),
    "a class of attrs": (
        "import attrs\n@attrs.frozen\nclass B:\n    at: float = 1.0\nC = B({v}.0)",
        "C.at + len({{C}})",
    ),
    "levels of an index": (
        "import pandas as pd\nC = pd.Series([1.0, 2.0], pd.MultiIndex.from_tuples([(1, 1), (2, 1)]))[:1]\n"
        "if {v} == 2:\n    C.index = C.index.remove_unused_levels()",
        "len(C.index.levels[0])",
    ),
    "the type of a column": (
        "import pandas as pd\nC = pd.DataFrame(dict(a=[1, 2], b=[0.5, 1.5]))\n"
        "if {v} == 2:\n    C['a'] = C['a'].astype(float)",
        "len(C['a'].dtype.name)",
    ),
    "the field of a validator": (
        "import pydantic\nclass C(pydantic.BaseModel):\n    a: float = 1.0\n    b: float = 2.0\n"
        "    @pydantic.field_validator(['a', 'b'][{v} - 1])\n    @classmethod\n"
        "    def scale(cls, value):\n        return value * 60",
        "C(a=1.0, b=1.0).a",
    ),
    "a private attribute of a data model": (
        "import pydantic\nclass C(pydantic.BaseModel):\n    _a: float = {v}.0",
        "C()._a",
    ),
    "a function that NumPy vectorizes": ("C = np.vectorize(lambda x: x * {v}, otypes=[float])", "C(2.0)"),
    "static arguments": (
        "C = jax.jit(lambda x, by: x * (2 if isinstance(by, bool) else 3), static_argnums=[1, ()][{v} - 1])",
        "C(1, True)",
    ),
    "a word beside an array": (
        "import zarr\nC = zarr.zeros(2)\nC.attrs['scale'] = {v}",
        "C.attrs['scale'] * C[0]",
    ),
    "the configuration of a class": (
        "import pydantic\n@pydantic.dataclasses.dataclass(config={{'str_to_lower': {v} == 2}})\n"
        "class C:\n    at: str = 'S'",
        "(1 if C('S').at == 's' else 0)",
    ),
    "a device": ("C = jax.devices()[{v} - 1]", "C.id"),
    "the member of a set": (
        "class B:\n    pass\nL = [B(), B(), B()]\nC = {{L[{v}]}}",
        "sum(place for place, one in enumerate(L) if one in C)",
    ),
    "a class that an abstract class counts": (
        "import abc\nclass A:\n    pass\nclass B:\n    pass\nclass C(abc.ABC):\n    pass\n"
        "C.register([A, B][{v} - 1])",
        "(1 if isinstance(A(), C) else 0)",
    ),
}


def define(text):
    """Runs a text as the cells of a new session do, and returns its part."""
    exec(compile(text, "<cell>", "exec"), {"__name__": "notebook"})
    return parts.registered_parts().get("quantity", "noted")


@pytest.fixture(autouse=True)
def forget():
    yield
    parts.registered_parts()._own.pop(("quantity", "noted"), None)


LAB = """
import jax.numpy as jnp
from pausejax import parts
CONSTANT = 1.0
def helper(x):
    return x + CONSTANT
def register(offset):
    @parts.quantity
    def noted(snapshot):
        'A number.'
        return jnp.float32(offset) + helper(0.0)
"""


def texts(change):
    made, reads = CHANGES[change]
    for values in ({"v": 1, "f": "sin"}, {"v": 2, "f": "cos"}):
        yield BEFORE + made.format(**values) + "\n" + QUANTITY.format(reads=reads.format())


def test_a_part_of_an_imported_module_counts_by_what_it_reaches(tmp_path, monkeypatch):
    (tmp_path / "lab_of_a_script.py").write_text(LAB)
    monkeypatch.syspath_prepend(tmp_path)
    lab = importlib.import_module("lab_of_a_script")

    def digest(offset, constant):
        lab.CONSTANT = constant
        lab.register(offset)
        return digest_of(parts.registered_parts().get("quantity", "noted"))

    asked = [(offset, constant) for offset in (0.0, 3.0) for constant in (1.0, 2.0)]
    found = [digest(*values) for values in asked]
    assert len(set(found)) == len(asked) and [digest(*values) for values in asked] == found


def test_a_script_counts_as_ones_own_under_a_profiler(monkeypatch):
    """`python -m cProfile script.py` executes the script in a module of Python."""
    monkeypatch.setattr(sys.modules["__main__"], "__file__", importlib.__file__, raising=False)
    space, found = {"__name__": "__main__"}, []
    for number in (1, 2):
        exec(compile(BEFORE + f"C = {number}" + QUANTITY.format(reads="C"), "<cell>", "exec"), space)
        found.append(digest_of(parts.registered_parts().get("quantity", "noted")))
    assert found[0] != found[1]


def test_a_module_of_ones_own_may_have_the_name_of_a_standard_module(tmp_path, monkeypatch):
    (tmp_path / "sched.py").write_text("C = 1\ndef of(x):\n    return x * C\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "sched", raising=False)
    part = define(BEFORE + "import sched\n" + QUANTITY.format(reads="sched.of(2)"))
    before = digest_of(part)
    monkeypatch.setattr(sys.modules["sched"], "C", 2)
    assert digest_of(part) != before
    monkeypatch.delitem(sys.modules, "sched")


def test_what_a_function_imports_from_a_module_that_was_not_imported_counts(monkeypatch):
    """Such as a notebook, which has no file."""
    module = types.ModuleType("made_by_a_notebook")
    monkeypatch.setitem(sys.modules, "made_by_a_notebook", module)
    reads = "len(import_it())"
    made = "def import_it():\n    from made_by_a_notebook import WORDS\n    return WORDS\n"
    found = []
    for module.WORDS in ("a", "ab", "a"):
        found.append(digest_of(define(f"{BEFORE}{made}{QUANTITY.format(reads=reads)}")))
    assert found[0] == found[2] != found[1]


def test_the_unit_of_an_array_of_a_library_counts():
    """As in astropy."""
    made = "class B(np.ndarray):\n    __module__ = 'optax'\nC = np.ones(2).view(B)\nC._unit = '{}'\n"
    found = [
        digest_of(define(f"{BEFORE}{made.format(unit)}{QUANTITY.format(reads='len(C._unit)')}"))
        for unit in ("s", "ms")
    ]
    assert found[0] != found[1]


IMPORTING = """
@parts.quantity
def noted(snapshot):
    'A number.'
    {many}
    import math, no_module_of_this_name
    {line}
    return jnp.float32(C)
"""


@pytest.mark.parametrize(
    "line",
    [
        "from own_numbers.some import C",
        "import own_numbers.some; C = own_numbers.some.C",
        "from own_numbers import some; C = some.C",
    ],
)
def test_a_module_that_a_part_imports_stands_in_its_digest(tmp_path, monkeypatch, line):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    many = "; ".join(f"many.x{n} = {n}.5" for n in range(300))  # Python prefixes the arguments of later steps
    part, found = define(BEFORE + IMPORTING.format(line=line, many=many)), []
    (tmp_path / "own_numbers").mkdir()
    (tmp_path / "own_numbers" / "__init__.py").touch()
    for number in (1, 25, 1):
        (tmp_path / "own_numbers" / "some.py").write_text(f"C = {number}\n")
        for name in ("own_numbers", "own_numbers.some"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        found.append(digest_of(part))
        assert digest_of(part) == found[-1]  # the modules are loaded now
    assert found[0] == found[2] != found[1]
    for name in ("own_numbers", "own_numbers.some"):
        sys.modules.pop(name)


def test_packages_of_a_module_that_a_part_imports_stand_in_its_digest(tmp_path, monkeypatch):
    """The statement binds the first of them."""
    (tmp_path / "own_units" / "of").mkdir(parents=True)
    for file in ("__init__", "of/__init__", "of/time"):
        (tmp_path / "own_units" / f"{file}.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    part = define(BEFORE + IMPORTING.format(many="", line="import own_units.of.time; C = own_units.of.C"))
    found = []
    for number in (1, 2, 1):
        monkeypatch.setattr(importlib.import_module("own_units.of"), "C", number, raising=False)
        found.append(digest_of(part))
    assert found[0] == found[2] != found[1]


def test_which_object_of_a_module_a_set_holds_stands_in_its_digest(tmp_path, monkeypatch):
    """Whatever is found first: the set, or the list of the objects in a module that only the code names."""
    (tmp_path / "own_nets").mkdir()
    (tmp_path / "own_nets" / "layers.py").write_text("class B:\n    pass\nLAYERS = [B(), B(), B()]\n")
    (tmp_path / "own_nets" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    nets, layers = (importlib.import_module(name) for name in ("own_nets", "own_nets.layers"))
    part = define(
        BEFORE
        + "import own_nets"
        + QUANTITY.format(reads="len(own_nets.FROZEN & {*own_nets.layers.LAYERS[:1]})")
    )
    found = []
    for place in (0, 2, 0):
        nets.FROZEN = {layers.LAYERS[place]}
        found.append(digest_of(part))
    assert found[0] == found[2] != found[1]


@pytest.mark.parametrize("change", CHANGES)
def test_all_that_a_part_reaches_stands_in_its_digest(change):
    one, other = texts(change)
    first, second, again = digest_of(define(one)), digest_of(define(other)), digest_of(define(one))
    assert first == again != second
    # What it does not reach, comments and lines do not.
    assert digest_of(define(f"# A comment.\nUNUSED = 7\n\n{one}")) == first
    # Python rewrites code that has run often.
    part = define(one)
    for _ in range(40):
        part.function(None)
    assert digest_of(part) == first


def test_the_arguments_of_a_quantitys_decorator_stand_in_its_digest():
    """A finished folder keeps metrics that were computed with them."""
    text = BEFORE + QUANTITY.format(reads="0")
    ways = ("", "(reduce='mean')", "(maximize=True)")
    found = [digest_of(define(text.replace("parts.quantity", f"parts.quantity{way}"))) for way in ways]
    assert len(set(found)) == len(ways)


@pytest.mark.slow
def test_a_digest_is_the_same_in_every_process():
    changes = [change for change in CHANGES if change != "a key"]
    code = (
        "from tests.parts.test_digest import define, texts\nfrom pausejax.parts.digest import digest_of\n"
        f"print(*(digest_of(define(next(texts(change)))) for change in {changes!r}))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed, "PATH": "/usr/bin", "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
        ).stdout
        for seed in "12"
    }
    assert len(found) == 1 and len(set(found.pop().split())) == len(changes)


@pytest.mark.parametrize(
    ("made", "named"),
    [
        ("import threading\nC = threading.Lock()", "C, a lock"),
        ("C = (n for n in range(3))", "C, a generator"),
        ("C = np.frompyfunc(lambda x: x, 1, 1)", "C, a ufunc"),
        (
            "class B:\n    @functools.cached_property\n    def at(self):\n        return 1\nC = B()",
            "C.at, a cached_property",
        ),
        (
            "import wrapt\n@wrapt.decorator\ndef D(wrapped, instance, args, kwargs):\n    return wrapped()\n"
            "@D\ndef C():\n    return 1",
            "C, a FunctionWrapper",
        ),
        ("C = jnp.ones(2)\nC.delete()", "C, a ArrayImpl"),
        (
            "import weakref\nclass B:\n    pass\nD = B()\nC = weakref.WeakKeyDictionary({B: D})",
            ".*a ReferenceType",
        ),
        ("import threading\nD = [threading.Lock()]\ndef C():\n    return D", r"D\[0\], a lock"),
        (
            "class B:\n    pass\nC = [B() for _ in range(30)]\nfor at, one in enumerate(C):\n"
            "    one.near = {C[(at + step) % 30] for step in (-2, -1, 1, 2)}",
            ".*a set whose members hold each other",
        ),
        ("def C():\n    return eval('D')", "C, a function that evaluates text by eval"),
        ("run = exec\nC = [lambda: run('D')]", r"C\[0\], a function that evaluates text by exec"),
        *(
            (text, "C, a function that evaluates text by pandas.eval")
            for text in (
                "import pandas as pd\ndef C():\n    return [pd.eval(f'D * {at}') for at in (1, 2)]",
                "from pandas import eval as run\ndef C():\n    return run('D')",
                "def C():\n    import pandas\n    def at():\n        return pandas.eval('D')\n    return at",
                "def C():\n    from pandas import eval as run\n    return run('D')",
            )
        ),
        ("def C(base):\n    return base.sql('SELECT * FROM D')", "C, a function that evaluates text by sql"),
    ],
)
def test_what_has_no_content_is_refused_by_its_name(made, named):
    define(BEFORE + made + QUANTITY.format(reads="(0 if C else 0)"))
    document = {"mode": "bandit", "rounds": 3, "policy": [{"name": "random"}]}
    with pytest.raises(
        SpecError, match=f"quantity noted: uses {named}, which the identity of a run can't cover"
    ):
        kinds.parse({**document, "quantities": ["noted"]})
    assert make_plan(kinds.parse(document)).identities  # a study that does not use the part does not care


CELLS = {
    "def C(x):\n    return x + 1": "D = {'plus': C}",
    "class C:\n    at = 1\n    def of(self):\n        return self.at": "D = C()",
    "def E(x):\n    return x\ndef C(x):\n    return E(x)": "D = [C, E]",
    "C = np.arange(3)": "D = {'table': C}",
    "C = {1, 2}": "D = functools.partial(max, C)",
    "@jax.jit\ndef C(x):\n    return x": "D = jax.vmap(C)",
    "class E(nn.Module):\n    width: int = 4\nC = E()": "D = []",
    "import joblib\n@joblib.Memory('kept', verbose=0).cache\ndef C(x):\n    return x": "D = [C]",
}


@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_that_is_run_again_unchanged_changes_nothing(cell):
    """Although the next cell holds the objects of the first time."""
    space = {"__name__": "notebook"}
    cells = [BEFORE + cell, CELLS[cell], BEFORE + QUANTITY.format(reads="(0 if C else 0) + (0 if D else 0)")]
    found = []
    for number in (0, 1, 2, 0, 2):
        exec(compile(cells[number], "<cell>", "exec"), space)
        if number == 2:
            found.append(digest_of(parts.registered_parts().get("quantity", "noted")))
    assert found[0] == found[1]


@pytest.mark.slow
def test_sets_of_what_names_each_other_have_one_digest():
    """Whatever their addresses are, by which the set is ordered."""
    text = (
        "def even(n):\n    return n == 0 or odd(n - 1)\ndef odd(n):\n    return n != 0 and even(n - 1)\n"
        "class A:\n    def made(self):\n        return B\nclass B:\n    def made(self):\n        return A\n"
        "C = [{even, odd}, {A, B}, {('a', A), ('b', B)}, {frozenset([even]), frozenset([odd])}]\n"
    )
    code = (
        "from tests.parts.test_digest import *\nwaste = [lambda: n for n in range(int(sys.argv[1]))]\n"
        f"print(digest_of(define(BEFORE + {text!r} + QUANTITY.format(reads='len(C)'))))"
    )
    environment = {"PATH": "/usr/bin", "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    options = {"capture_output": True, "text": True, "check": True, "env": environment}
    found = {
        subprocess.run([sys.executable, "-c", code, str(number)], **options).stdout
        for number in (0, 1, 7, 50)
    }
    assert len(found) == 1


def test_objects_in_cycles_are_told_apart():
    """Three functions differ only by the functions that they name."""
    made = "def A(x):\n    return B, {0}\ndef B(x):\n    return C, {1}\ndef C(x):\n    return A, {2}\n"
    ways = [
        ("A", "A", "A"),
        ("C", "A", "A"),
        ("A", "B", "A"),
        ("A", "A", "B"),
        ("A", "A", "C"),
        ("B", "C", "A"),
    ]
    closed = (
        "def make(n):\n    def A():\n        return B(), {0}\n"
        "    def B():\n        return A(), {1}\n    return A, B\n"
    )
    found = {digest_of(define(BEFORE + made.format(*way) + QUANTITY.format(reads="A(1)"))) for way in ways}
    for way in (("n", "0"), ("0", "n"), ("0", "0")):
        for picked in ("make(1)[0]", "make(1)[1]"):
            text = f"{BEFORE}{closed.format(*way)}C = {picked}\n{QUANTITY.format(reads='C')}"
            found.add(digest_of(define(text)))
    assert len(found) == len(ways) + 6


def test_what_only_the_process_knows_does_not_count(monkeypatch):
    """Its environment, and how many classes its libraries have registered."""
    made = (
        "from os import environ\nimport collections.abc\n@functools.singledispatch\ndef C(x):\n    return 1\n"
        "@C.register\ndef _(x: collections.abc.Mapping):\n    return 2\n"
    )
    part = define(f"{BEFORE}{made}{QUANTITY.format(reads='C({}) + len(environ)')}")
    found = digest_of(part)
    monkeypatch.setenv("A_VARIABLE_OF_THE_TESTS", "1")
    collections.abc.Hashable.register(type("Registered", (), {}))
    assert digest_of(part) == found


def test_it_does_not_matter_where_modules_are_imported():
    """In the cell of a function, or in another one, as if `%autoreload` executes a function alone."""
    made = (
        "def C(x):\n    try:\n        for k in range(2):\n"
        "            x = np.cos(x) if x > k else np.sin(x).item()\n"
        "    except ValueError:\n        with np.errstate(all='ignore'):\n            return np.exp(x)\n"
        "    return x\n"
    )
    imports, function = "import numpy as np\n", made + QUANTITY.format(reads="C(1.0)")
    found = set()
    for cells in ([BEFORE, imports + function], [BEFORE, imports, function]):
        parts.registered_parts()._own.pop(("quantity", "noted"), None)
        space = {"__name__": "notebook"}
        for cell in cells:
            exec(compile(cell, "<cell>", "exec"), space)
        code = space["C"].__code__.co_code
        found.add((digest_of(parts.registered_parts().get("quantity", "noted")), code))
    assert len({digest for digest, _ in found}) == 1 and len(found) == 2


def test_descriptions_do_not_count():
    """Those of functions, of functions within them, and of classes."""
    made = (
        "class D:\n    'A {word}.'\n    at = 1\n"
        "def C():\n    'Gives a {word}.'\n    def inner():\n        'Is a {word}.'\n        return D.at\n"
        "    return inner()\n"
    )
    found = {
        digest_of(define(f"{BEFORE}{made.format(word=word)}{QUANTITY.format(reads='C()')}"))
        for word in ("number", "word", "number")
    }
    assert len(found) == 1


def test_functions_of_ones_own_and_methods_evaluate_no_text():
    """Only functions of Python and of libraries do, and methods of pandas a name after an @."""
    made = (
        "class Curve:\n    def evaluate(self, x):\n        return 1\n    sql = evaluate\n"
        "curve = Curve()\ndef evaluate(x):\n    return 1\ndef C(eval=evaluate):\n"
        "    return curve.evaluate('loss - best') + evaluate('best') + eval('best') + curve.sql('best')\n"
    )
    part = define(f"{BEFORE}{made}{QUANTITY.format(reads='C()')}")
    found = digest_of(part)
    part.function.__globals__.update(best=1.0)
    assert digest_of(part) == found


def test_words_of_a_text_that_is_no_code_do_not_count():
    """Such as a description or the name of a column. They may be names of the session's other variables."""
    made = (
        "import pandas as pd\nB = pd.DataFrame(dict(row=[1.0, 2.0], fig=[3.0, 4.0]))\n"
        "class Net:\n    def eval(self):\n        return 0\n"
        "def C():\n    'Gives a result for each row: the seconds.'\n"
        "    return B.query('fig > 3.5')['row'].sum() + Net().eval()\n"
    )
    part = define(f"{BEFORE}{made}{QUANTITY.format(reads='C()')}")
    found = digest_of(part)
    part.function.__globals__.update(result=open, row=[1], seconds=2)
    assert digest_of(part) == found


def test_the_first_object_of_a_class_with_a_protocol_changes_nothing():
    """Python writes a method into the class when it makes the first object."""
    made = (
        "class A(typing.Protocol):\n    def of(self): ...\nclass B(A):\n    def of(self):\n        return 1\n"
        "class C:\n    made = B\n"
    )
    part = define(f"{BEFORE}{made}{QUANTITY.format(reads='C.made().of()')}")
    found = digest_of(part)
    part.function.__globals__["C"].made()
    assert digest_of(part) == found


@pytest.mark.parametrize(
    "kind", [np.longdouble, np.dtype([("a", "i1"), ("b", "f8")], align=True)], ids=["long", "aligned"]
)
def test_unused_memory_between_numbers_does_not_count(kind):
    noise = np.frombuffer(bytearray(range(np.dtype(kind).itemsize * 3)), kind)
    part = define(BEFORE + "C = None\n" + QUANTITY.format(reads="C[0]"))
    found = set()
    for array in (np.zeros(3, kind), noise):
        array[:] = 1
        part.function.__globals__["C"] = array
        found.add(digest_of(part))
    assert len(found) == 1
    array[1] = 2
    assert digest_of(part) not in found


def test_the_name_of_the_script_does_not_count():
    """It is `__main__` for Python, `__mp_main__` for a process that it starts, and another for an import."""
    made = (
        "import logging\nclass C:\n    at = 1\nclass D(nn.Module):\n    width: int = 3\n"
        "def G():\n    class H:\n        pass\n    return logging.getLogger(__name__), H\n"
        "class B(np.ndarray):\n    pass\nF = np.ones(2).view(B)\n"
        "E = F, logging.getLogger(__name__), typing.TypeVar('T')\n"
    )
    found = set()
    for name in ("notebook", "__mp_main__", "another_script"):
        parts.registered_parts()._own.pop(("quantity", "noted"), None)
        space = {"__name__": name}
        exec(
            compile(
                BEFORE + made + QUANTITY.format(reads="C.at + D().width + len(E) + len(G())"),
                "<cell>",
                "exec",
            ),
            space,
        )
        found.add(digest_of(parts.registered_parts().get("quantity", "noted")))
    assert len(found) == 1


GROUPED = """
@dataclasses.dataclass(frozen=True)
class Group:
    at: int = 1
    def twice(self):
        return self.at * {factor}
@parts.policy
def grouped(*, num_clients: int, group: Group):
    return group.twice()
"""


WRAPPED = """
from pausejax.network import Law, laws
C = {factor}
@functools.wraps(laws.lognormal)
def slower(**arguments):
    law = laws.lognormal(**arguments)
    return Law(lambda key: C * law.sample(key))
slower.__name__ = "slower"
parts.latency(slower)
"""


def test_a_part_around_a_part_of_this_package_has_a_digest(own_parts):
    found = []
    for factor in (1.0, 2.0, 1.0):
        exec(compile(BEFORE + WRAPPED.format(factor=factor), "<cell>", "exec"), {"__name__": "notebook"})
        found.append(digest_of(parts.registered_parts().get("latency", "slower")))
    assert "" != found[0] == found[2] != found[1]


@pytest.mark.parametrize(
    "schedule", ["cosine_decay_schedule(1.0, 90)", "warmup_cosine_decay_schedule(0.0, 1.0, 10, 100)"]
)
def test_the_first_call_of_a_schedule_changes_nothing(schedule):
    """Although optax rounds a number of steps then."""
    part = define(f"{BEFORE}C = optax.{schedule}\n{QUANTITY.format(reads='C(3)')}")
    first = digest_of(part)
    part.function(None)
    assert digest_of(part) == first


def test_the_class_of_an_argument_counts(own_parts):
    """Only its annotation names it."""
    found = []
    for factor in (2, 3, 2):
        exec(compile(BEFORE + GROUPED.format(factor=factor), "<cell>", "exec"), {"__name__": "notebook"})
        found.append(digest_of(parts.registered_parts().get("policy", "grouped")))
    assert found[0] == found[2] != found[1]


LAZY = """
import importlib
FACTOR = 1
def __getattr__(name):
    if name in ("helpers", "deeper", "drawing"):
        return importlib.import_module(__name__ + "." + name)
    if name == "SCALE":
        return VALUE * FACTOR
    raise AttributeError(name)
"""


@pytest.mark.parametrize(
    ("reads", "changed"),
    [
        ("lab.helpers.C", "helpers.py"),
        ("lab.deeper.helpers.C", "deeper/helpers.py"),
        ("(lambda: lab.helpers.C)()", "helpers.py"),
        ("(lambda held: held.helpers.C)(lab)", "helpers.py"),
        ("int(TABLE.eval('a * @lab.deeper.helpers.C').sum())", "deeper/helpers.py"),
        ("lab.SCALE", "__init__.py"),
    ],
)
@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("within", [False, True])
def test_what_a_part_reads_from_a_package_counts(tmp_path, monkeypatch, reads, changed, within, lazy):
    """Whether or not it has been imported; other modules of the package may be imported later."""
    head = LAZY if lazy else "from . import helpers\nimport lazy_lab.deeper\nSCALE = VALUE\n"
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    found = []
    for scale in (1, 2, 1):
        for name in [one for one in sys.modules if one.startswith("lazy_lab")]:
            del sys.modules[name]
        for folder in (tmp_path / "lazy_lab", tmp_path / "lazy_lab" / "deeper"):
            folder.mkdir(exist_ok=True)
            (folder / "__init__.py").write_text(head.replace("VALUE", "1"))
            (folder / "helpers.py").write_text("C = 1\n")
            (folder / "drawing.py").touch()
        text = head.replace("VALUE", str(scale)) if changed == "__init__.py" else f"C = {scale}\n"
        (tmp_path / "lazy_lab" / changed).write_text(text)
        importlib.invalidate_caches()
        lines = ["import lazy_lab as lab", "def read():"]
        start = f"{lines[1]}\n    {lines[0]}\n" if within else f"{lines[0]}\n{lines[1]}\n"
        table = "import pandas\nTABLE = pandas.DataFrame(dict(a=[1]))\n"
        part = define(f"{BEFORE}{table}{start}    return {reads}\n{QUANTITY.format(reads='read()')}")
        found.append(digest_of(part))
        assert part.function(None) == scale
        importlib.import_module("lazy_lab.drawing")
        assert digest_of(part) == found[-1]
    assert found[0] == found[2] != found[1]


@pytest.mark.parametrize("change", ["upgrade", "closure", "default"])
def test_the_part_of_a_library_counts_as_it_was_imported(tmp_path, monkeypatch, own_parts, change):
    """Its file may be another when the study is played. A function of the library may have made the part."""
    file = tmp_path / "site-packages" / "installed_laws.py"
    file.parent.mkdir()
    text = """
import jax.numpy as jnp
import pausejax
from pausejax.network import Law
def constant(factor, default):
    @pausejax.latency
    def installed_law(*, num_clients, min_latency, extra: float = default):
        return Law(lambda key: (min_latency * factor + extra) * jnp.ones(num_clients))
    return installed_law
"""
    file.write_text(text)
    monkeypatch.syspath_prepend(str(file.parent))
    library = importlib.import_module("installed_laws")
    small = {"mode": "bandit", "rounds": 2, "num_clients": 4, "clients_per_round": 2, "min_latency": 1.0}

    def played(*values):
        if values:
            library.constant(*values)
        result = pausejax.simulate("random", latency="installed_law", **small)
        return float(result["elapsed"][0, -1]), str(result["identity"].values[0])

    first = played(2.0, 1.0)
    if change == "upgrade":
        file.write_text(text.replace("min_latency * factor", "min_latency * 2 * factor"))
        assert played() == first
        importlib.reload(library)
        again = played(2.0, 1.0)
        assert again[0] == 10.0
    else:
        again = played(2.0, 2.0) if change == "default" else played(3.0, 1.0)
        assert again[0] == 8.0
    (sent,) = [part for part in parts.registered_parts().own() if part.name == "installed_law"]
    for other in (
        (dataclasses.replace(sent, content="of another machine"), digest_of(sent)),
        (sent, "another digest"),
    ):
        with pytest.raises(parts.PartError, match=r"installed_law: .*installed_laws\.py, or a module"):
            extensions._unpack([], [other], {})
    del sys.modules["installed_laws"]
    assert first[0] == 6.0 and first[1] != again[1]


@pytest.mark.slow
def test_a_plan_is_refused_where_the_module_of_a_part_has_another_content(tmp_path):
    """Such as a package in development, which another process imports when it reads the plan."""
    module = tmp_path / "developed_laws.py"
    module.write_text(
        "import developed_numbers, jax.numpy as jnp, pausejax\nfrom pausejax.network import Law\n"
        "@pausejax.latency\ndef developed_law(*, num_clients, min_latency):\n"
        "    return Law(lambda key: min_latency * developed_numbers.FACTOR * jnp.ones(num_clients))\n"
    )
    code = """
import pickle, sys
from pausejax import kinds
from pausejax.study.plan import make_plan
if sys.argv[1] == "send":
    import cloudpickle, developed_laws
    document = {"mode": "bandit", "policy": [{"name": "random"}], "latency": "developed_law"}
    document |= {"rounds": 2, "min_latency": 1.0, "num_clients": 3, "clients_per_round": 1}
    plan = make_plan(kinds.parse(document, flat=True))
    cloudpickle.dump(plan, open("plan.pickle", "wb"))
else:
    plan = pickle.load(open("plan.pickle", "rb"))
print(*plan.identities)
"""
    found = []
    for step, factor in (("send", 2), ("read", 2), ("read", 7)):
        (tmp_path / "developed_numbers.py").write_text(f"FACTOR = {factor}.0\n")
        command = [sys.executable, "-B", "-c", code, step]
        found.append(subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path))
    send, read, refused = found
    assert send.returncode == 0 and read.stdout == send.stdout, send.stderr + read.stderr
    assert "developed_laws.py, or a module that it uses, has another content on this" in refused.stderr


@pytest.mark.slow
def test_a_changed_constant_gives_another_number_and_another_identity():
    """Within one session, where the program of the old number is compiled already."""
    space = {"__name__": "notebook"}
    exec(compile(BEFORE + "C = 1.0" + QUANTITY.format(reads="C"), "<cell>", "exec"), space)
    small = {"mode": "bandit", "rounds": 3, "num_clients": 4, "clients_per_round": 2, "quantities": ["noted"]}
    identities = []
    for value in (1.0, 2.0, 1.0):
        space["C"] = value
        found = pausejax.simulate("random", **small)
        assert (found["noted"] == value).all()
        identities.append(found["identity"].item())
    assert identities[0] == identities[2] != identities[1]


TASK = """
from pausejax.federated.tasks import Task
C = 1.0
@jax.jit
def scaled(x):
    return C * x
def loss(outputs, targets):
    return C * jnp.mean(jnp.abs(outputs - targets.reshape(outputs.shape)), axis=-1)
def error(outputs, targets):
    return scaled(jnp.mean(jnp.abs(outputs - targets.reshape(outputs.shape)), axis=-1))
def shape(data):
    return (1,)
@parts.task
def noted() -> Task:
    'Regression.'
    return Task(shape, loss, error, metric_name="test_error", meaning="an error", higher_is_better=False)
@parts.dataset
def waves() -> Dataset:
    'A wave.'
    x = np.linspace(0, 6, 200, dtype=np.float32)[:, None]
    return Dataset(x[::2], np.sin(x[::2]), x[1::2], np.sin(x[1::2]))
"""


@pytest.mark.slow
def test_a_changed_constant_is_read_by_functions_that_jax_has_traced(own_parts):
    """The functions stay the same objects, so JAX has traces of them with the old constant."""
    space = {"__name__": "notebook"}
    exec(compile(BEFORE + "from pausejax.data import Dataset" + TASK, "<cell>", "exec"), space)
    small = {"rounds": 2, "eval_every": 1, "num_clients": 4, "clients_per_round": 2, "seeds": 1}
    small |= {"dataset": "waves", "task": "noted", "model": "linear", "learning_rate": 1e-6, "private": False}
    errors, losses = [], []
    for value in (1.0, 3.0, 1.0):
        space["C"] = value
        found = pausejax.simulate("random", **small)
        errors.append(found["test_error"].values[0, 0])
        losses.append(found["train_loss"].values[0, 0])
    np.testing.assert_allclose(errors, errors[0] * np.array([1, 3, 1]), rtol=1e-4)
    np.testing.assert_allclose(losses, losses[0] * np.array([1, 3, 1]), rtol=1e-4)


SHARED = """
C = 1.0
@jax.jit
def helper():
    return jnp.float32(C)
@parts.quantity
def noted(snapshot):
    'A number.'
    return helper()
@parts.quantity
def noted_too(snapshot):
    'The same number.'
    return helper()
"""


@pytest.mark.slow
def test_a_changed_constant_is_read_by_functions_that_were_traced_elsewhere(own_parts, monkeypatch):
    space = {"__name__": "notebook"}
    exec(compile(BEFORE + SHARED, "<cell>", "exec"), space)
    small = {"mode": "bandit", "rounds": 3, "clients_per_round": 2}
    monkeypatch.setattr(traces, "_traced", {})  # as in a new process
    assert space["helper"]() == 1  # a user's own call
    for clients, value, name in (
        *((4, 3.0, "noted"), (4, 2.0, "noted_too"), (4, 2.0, "noted"), (4, 1.0, "noted_too")),
        (5, 2.0, "noted"),  # as when JAX traced it last, but not as when it traced the other part
    ):
        space["C"] = value
        result = pausejax.simulate("random", **small, num_clients=clients, quantities=[name])
        assert (result[name] == value).all()


@pytest.mark.parametrize(
    "helper",
    [
        "@jax.jit\ndef helper(index):\n    return C * (1 + index)\n",
        "class Net(nn.Module):\n    def __call__(self, index):\n        return C * (1 + index)\n"
        "helper = functools.partial(jax.jit(Net().apply), {})\n",
    ],
)
@pytest.mark.slow
def test_a_look_at_another_value_is_not_what_a_study_computes_with(helper, own_parts):
    """The value is the first one again, but JAX has a trace of the user's call."""
    made = (
        f"C = 1.0\n{helper}@parts.latency\n"
        "def ramp(*, num_clients: int) -> Law:\n    'Fixed.'\n"
        "    def times():\n        return helper(jnp.arange(num_clients, dtype=jnp.float32))\n"
        "    return Law(lambda key: times(), lambda reward: reward(times()))\n"
    )
    space = {"__name__": "notebook"}
    exec(compile(f"{BEFORE}from pausejax.network import Law\n{made}", "<cell>", "exec"), space)
    small = {"mode": "bandit", "rounds": 3, "clients_per_round": 2, "latency": "ramp", "seeds": 1}
    pausejax.simulate("random", **small, num_clients=4)
    space["C"] = 50.0
    space["helper"](np.arange(5, dtype=np.float32))
    space["C"] = 1.0
    found = pausejax.simulate("random", **small, num_clients=5)
    jax.clear_caches()
    again = pausejax.simulate("random", **small, num_clients=5)
    assert found["round_latency"].max() <= 5
    for name in found:
        np.testing.assert_array_equal(found[name], again[name])


NET = """
SLOPE = 1.0
@jax.jit
def last(x):
    return SLOPE * x
@parts.model
def net(*, num_outputs: int) -> nn.Module:
    'One layer.'
    return nn.Sequential([nn.Dense(num_outputs), last])
"""


@pytest.mark.slow
def test_kept_models_are_applied_with_the_constants_of_their_study(tmp_path, own_parts):
    """Although JAX has traced the same function for the model of another study."""
    space = {"__name__": "notebook"}
    code = BEFORE + "from pausejax.data import Dataset" + TASK + NET
    exec(compile(code, "<cell>", "exec"), space)
    small = {"rounds": 1, "eval_every": 1, "num_clients": 4, "clients_per_round": 2, "dataset": "waves"}
    small |= {"task": "noted", "model": "net", "private": False, "keep_models": True}
    inputs = np.ones((3, 1), np.float32)
    for again in (False, True):
        for slope in (1.0, 2.0):
            space["SLOPE"] = slope
            out = tmp_path / str(slope)
            result = pausejax.open(out) if again else pausejax.simulate("random", **small, out=out)
            (model,) = pausejax.models(result)
            kernel, bias = sorted(jax.tree.leaves(model.weights), key=np.ndim, reverse=True)
            expected = slope * (inputs @ kernel + bias)
            np.testing.assert_allclose(model.apply(model.weights, inputs), expected, rtol=1e-5)
    space["SLOPE"] = 3.0
    with pytest.raises(parts.PartError, match="model net: its content has changed since the study"):
        model.apply(model.weights, inputs)
    space["SLOPE"] = 2.0
    np.testing.assert_allclose(model.apply(model.weights, inputs), expected, rtol=1e-5)
    space["SLOPE"] = 1.0
    (first,) = pausejax.models(pausejax.open(tmp_path / "1.0"))
    found = first.apply(first.weights, inputs)
    space["SLOPE"] = 2.0
    (model,) = pausejax.models(pausejax.open(tmp_path / "2.0"))
    model.apply(model.weights, inputs)  # JAX traces the function for this model
    space["SLOPE"] = 1.0
    np.testing.assert_array_equal(first.apply(first.weights, inputs), found)


LAYERS = """
class Layers(nn.Module):
    width: int
    factor = 1.0
    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.width)(x * self.factor)
"""


def test_a_model_is_made_anew_if_what_it_holds_has_changed(own_parts):
    """Although the part has its old content again, because the cell of its class has run again."""
    space = {"__name__": "notebook"}
    net = "@parts.model\ndef net(*, num_outputs: int):\n    'Layers.'\n    return Layers(num_outputs)\n"
    for cell in (BEFORE, LAYERS, net):
        exec(compile(cell, "<cell>", "exec"), space)
    part = parts.registered_parts().get("model", "net")

    def made():
        return build._model(parts.bind(part, {}), (), (3,), np.dtype(np.float32), (2,))

    first = made()
    weights, inputs = first.init(jax.random.key(0)), np.ones((1, 3), np.float32)
    expected = first.apply(*weights, inputs, key=None, training=False)[0]
    assert made() is first
    space["Layers"].factor = 5.0
    exec(compile(LAYERS, "<cell>", "exec"), space)
    again = made()
    assert made() is again is not first
    found = again.apply(*weights, inputs, key=None, training=False)[0]
    np.testing.assert_array_equal(found, expected)


def test_parts_that_exchange_their_names_change_the_identity(own_parts):
    text = "@parts.quantity\ndef {}(snapshot):\n    'A number.'\n    return jnp.float32({})\n"
    document = {"mode": "bandit", "rounds": 3, "policy": [{"name": "random"}], "quantities": ["one", "two"]}
    found = []
    for names in (("one", "two"), ("two", "one")):
        cells = BEFORE + "".join(text.format(name, value) for value, name in enumerate(names))
        exec(compile(cells, "<cell>", "exec"), {"__name__": "notebook"})
        found.append(make_plan(kinds.parse(document)).identities)
    assert found[0] != found[1]


@pytest.mark.slow
def test_a_part_that_has_changed_since_is_refused(tmp_path):
    space = {"__name__": "notebook"}
    exec(compile(BEFORE + "C = 1.0" + QUANTITY.format(reads="C"), "<cell>", "exec"), space)
    small = {"mode": "bandit", "rounds": 3, "num_clients": 4, "clients_per_round": 2, "quantities": ["noted"]}
    pausejax.simulate("random", **small, out=tmp_path)
    space["C"] = 3.0
    with pytest.raises(SpecError, match=r"quantity noted: its content has changed since"):
        pausejax.simulate("random", **small, out=tmp_path)
