"""Tells whether a file, a module or an error is of the user, this package, Python or a library."""

import functools
import importlib.machinery
import os
import sys
import sysconfig
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any


@functools.cache
def package() -> Path:
    """Returns the folder of this package."""
    return Path(__file__).resolve().parents[1]


def real_path(file: str) -> Path:
    """Returns the path of an imported module's file without links.

    Each load of a file of one's own asks for the paths of all modules, which takes 0.1 s. So an absolute path
    is looked up once in a process. If a link changes later, the first answer stays.
    """
    return _real_path(file) if os.path.isabs(file) else Path(file).resolve()


@functools.cache
def _real_path(file: str) -> Path:
    return Path(file).resolve()


@functools.cache
def _standard() -> Path:
    return Path(sysconfig.get_path("stdlib")).resolve()


@functools.cache
def in_package(file: str) -> bool:
    """Returns whether a file belongs to this package. The path may contain links."""
    path = Path(file)
    return path.is_absolute() and path.resolve().is_relative_to(package())


def of_others(path: Path) -> bool:
    """Returns whether a file belongs to this package, to Python, or to an installed package."""
    installed = {"site-packages", "dist-packages"}
    known = in_package(str(path)) or bool(installed & set(path.parts)) or path.is_relative_to(_standard())
    return known or any(not _installed(folder).isdisjoint((path, *path.parents)) for folder in sys.path)


@functools.cache
def _installed(folder: str) -> frozenset[Path]:
    """Returns the folders and files that `pip install --target` has put into a folder."""
    base = Path(folder).resolve()
    records = base.glob("*.dist-info/RECORD")
    lines = (line for record in records for line in record.read_text(errors="replace").splitlines())
    return frozenset(base / line.partition(",")[0].partition("/")[0] for line in lines)


NEEDED = frozenset(
    (
        *("IPython", "absl", "array_record", "chex", "dp_accounting", "flax", "fsspec", "jax"),
        *("jaxlib", "jinja2", "markupsafe", "matplotlib", "mlflow", "numpy", "optax", "optuna"),
        *("orbax", "pandas", "platformdirs", "pyarrow", "ray", "rich", "scipy", "sklearn"),
        *("tensorflow", "tensorflow_datasets", "tomli_w", "wandb", "xarray", "zarr"),
    )
)
"""Libraries that this package imports."""


def is_of_user(module: str, path: Path) -> bool:
    """Returns whether a module, from a file, is one of the user's own.

    A library that this package imports is not, even if the user develops the library: this package would not
    know the classes of a second copy.
    """
    return not of_others(path) and module.partition(".")[0] not in NEEDED


def file_of(module: ModuleType | None) -> str:
    """Returns the file of a module; "" if it has none."""
    file = attributes_of(module).get("__file__")
    return file if isinstance(file, str) else ""


def attributes_of(module: object) -> dict[str, Any]:
    """Returns the attributes of a module. Does not execute a lazy module, as `getattr` would."""
    try:
        return object.__getattribute__(module, "__dict__")
    except AttributeError:  # an object without attributes that a module has put in its place
        return {}


def is_foreign(module: str) -> bool:
    """Returns whether a module is of this package, of Python, or installed.

    Objects of such modules enter a digest by their names.
    """
    top = module.partition(".")[0]
    # Under `python -m cProfile script.py`, for example, the file of these modules is one of Python.
    if top in ("__main__", "__mp_main__"):
        return False
    files = (getattr(sys.modules.get(name), "__file__", None) for name in (module, top))
    file = next(filter(None, files), None)
    # A module in C has no file.
    return of_others(real_path(file)) if file else top in sys.stdlib_module_names


def is_foreign_spec(found: importlib.machinery.ModuleSpec) -> bool:
    """Returns what `is_foreign` would return for a module that is not imported yet."""
    place = found.origin if found.has_location else next(iter(found.submodule_search_locations or ()), None)
    return place is None or of_others(Path(place).resolve())


def is_of_library(kind: type) -> bool:
    """Returns whether a class is of this package, of Python, or of an installed package."""
    # In some classes of Cython, `__module__` describes the attribute of the instances.
    return not isinstance(kind.__module__, str) or is_foreign(kind.__module__)


def is_named_by_library(kind: type) -> bool:
    """Returns whether a class is of Python or a library, and its name stands for it.

    A library may also make a class from a class of one's own, such as `flax.linen.remat(Block)`. Its name
    does not say from which.
    """
    if not is_of_library(kind):
        return False
    written_in_c = not isinstance(vars(kind).get("__module__"), str)
    return written_in_c or named(str(kind.__module__), kind.__qualname__) is kind


def named(module: str, name: str) -> Any:
    """Returns the object of a module with a qualified name, such as "Module.apply"; None if there is none."""
    found: Any = sys.modules.get(module)
    for one in name.split("."):
        found = getattr(found, one, None)
    return found


def place_of(error: BaseException, base: Path, module: str) -> str:
    """Returns where an error arose in the user's files, such as "line 3: "; "" if it arose elsewhere."""
    if isinstance(error, SyntaxError) and error.filename:
        file, line = error.filename, error.lineno
    else:
        frames = traceback.extract_tb(error.__traceback__)
        inside = [frame for frame in frames if Path(frame.filename).is_relative_to(base)]
        if not inside:
            return ""
        file, line = inside[-1].filename, inside[-1].lineno
    path = Path(file)
    itself = path.with_suffix("") == base.joinpath(*module.split(".")) or not path.is_relative_to(base)
    return f"line {line}: " if itself else f"{path.relative_to(base)}: line {line}: "
