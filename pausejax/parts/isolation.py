"""Executes the files of each entry of `use` with copies of the user's modules that nobody else holds."""

import builtins
import contextlib
import copy
import functools
import importlib
import pickle
import random
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import resolve_name, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from pausejax.parts.imports import OwnFinder, spec_of
from pausejax.parts.origin import attributes_of, file_of, real_path
from pausejax.parts.part import PartError
from pausejax.parts.registry import collecting
from pausejax.parts.visits import is_visiting, visit


class OwnModules(OwnFinder):
    """Copies of the user's modules for one entry of `use`.

    Each file is read once. The session and other entries have other copies. So neither an edited file nor an
    import of the session changes what the entry's functions compute.
    """

    def __init__(
        self,
        base: Path,
        belongs: Callable[[str, Path], bool],
        names: Iterable[str],
        places: Mapping[str, Path],
    ) -> None:
        """Begins without modules.

        Args:
          base: the folder that Python searches first.
          belongs: function from a dotted name and a file to whether this module is one of the user's.
          names: names of such modules; more are found while files are executed.
          places: files of some modules by name, even if Python would not find them.
        """
        self._belongs = belongs
        self._names = {*names}
        self._path = [str(base), *sys.path]
        self._modules: dict[str, ModuleType] = {}
        # By name and file. A link that leads to a library now is expected to do so later.
        self._known: dict[tuple[str, str], bool] = {}
        self._other_threads: set[int | None] = set()
        # Names of modules that threads of the session import while these modules are in place.
        self._foreign: set[str] = set()
        self.places = {**places}
        """Files of modules, by name, that functions may import later, even if the files are gone then."""
        self.contents: dict[Path, bytes] = {}
        """What is executed for each file, also if it is imported later."""
        self.is_loaded = False
        self._states: dict[str, bytes] = {}

    @property
    def files(self) -> dict[str, Path]:
        """Files of the modules that have been imported, by the modules' names. They may be links."""
        found = {name: file_of(module) for name, module in self._modules.items()}
        return {name: Path(file) for name, file in found.items() if file}

    @property
    def shared(self) -> list[str]:
        """Packages that hold both these modules and modules of a library. Such a package can't be copied."""
        packages = {name.rpartition(".")[0] for name in self._modules} - self._modules.keys()
        return sorted(packages & sys.modules.keys())

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Puts these modules and their search path in the place of the session's within the `with` block.

        Raises:
          PartError: a function has changed a random generator that is a global variable of a module.
        """
        with visit(self):
            yield
        for name, state in self._generators().items() if self.is_loaded else ():
            if self._states.setdefault(name, state) != state:
                wrong = "a function has changed this random generator, so its numbers depend on earlier calls"
                raise PartError(f"{name}: {wrong}. Make the generator within the function")

    def close(self, modules: Mapping[str, Path]) -> None:
        """Ends the loading. From now on, functions may only import modules whose files are in `contents`."""
        self.places.update(modules)
        self._states, self.is_loaded = self._generators(), True

    def require(self, file: Path) -> None:
        """Raises a PartError after the loading if a module's file is not in `contents`."""
        if self.is_loaded and file not in self.contents:
            wrong = "a function imports this module, but no file names it"
            raise PartError(f"{file}: {wrong}. Import it at the head of a file")

    def note_generators(self, module: ModuleType) -> None:
        """Notes the states of a module's random generators. The module has just been executed."""
        self._states.update(_states_of(module))

    def _generators(self) -> dict[str, bytes]:
        return {name: one for module in [*self._modules.values()] for name, one in _states_of(module).items()}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Returns the spec of a user's module; None for other modules."""
        found = spec_of(name, path, target)
        place = self.places.get(name)
        if place and (found is None or not found.origin or Path(found.origin).resolve() != place):
            loader = SourceFileLoader(name, str(place))
            within = [str(place.parent)] if place.name == "__init__.py" else None
            found = spec_from_file_location(name, place, loader=loader, submodule_search_locations=within)
        elif found is None and (folders := self._folders(name)):
            found = ModuleSpec(name, None, is_package=True)
            found.submodule_search_locations = folders
            return found
        path = getattr(found.loader, "path", "") if found else ""
        file = Path(path).resolve()
        if found is None or not path or not self._belongs(name, file):
            return None
        if threading.get_ident() in self._other_threads and not is_visiting(self) and name not in self._names:
            self._foreign.add(name)
            return None
        if not isinstance(found.loader, SourceFileLoader):  # a compiled module
            self.require(file)
            return None
        found.loader = _own_loader(found.loader, self)
        self._names.add(name)
        return found

    def _folders(self, package: str) -> list[str]:
        """Returns the folders of a package without `__init__.py` that `places` knows."""
        depth = package.count(".") + 1
        inside = {name: file for name, file in self.places.items() if name.startswith(f"{package}.")}
        ups = {file: name.count(".") - depth + (file.name == "__init__.py") for name, file in inside.items()}
        return sorted({str(file.parents[up]) for file, up in ups.items()})

    def lead(self) -> None:
        """Puts this finder before those that a file has added, such as a hook that checks types."""
        if self in sys.meta_path and sys.meta_path[0] is not self:
            sys.meta_path.remove(self)
            sys.meta_path.insert(0, self)

    def import_later(self, name: str, *more: Any, **options: Any) -> Any:
        """Imports a module within a function of these modules. Takes and returns what `__import__` does."""
        if self not in sys.meta_path and len(more) == 4 and (found := self._imported(name, *more)):
            return found
        level = options.get("level", more[3] if len(more) > 3 else 0)
        top = name.partition(".")[0]
        present, own = sys.modules.get(top), {place.partition(".")[0] for place in self.places}
        if not level and top not in own and present and not self._is_own(top, present):
            return builtins.__import__(name, *more, **options)
        # The session may have another module of this name, or one that the entry would not find.
        with visit(self):
            return builtins.__import__(name, *more, **options)

    def _imported(self, name: str, scope: Any, _: Any, names: Any, level: int) -> ModuleType | None:
        """Returns what `__import__` would return for modules that are imported already; None for others."""
        with contextlib.suppress(ImportError, KeyError):
            full = resolve_name("." * level + name, scope["__package__"]) if level else name
            module = self._modules[full]
            if getattr(attributes_of(module).get("__spec__"), "_initializing", False):
                return None
            if names:
                return module if all(hasattr(module, one) for one in names) else None
            return self._modules[name.partition(".")[0]]
        return None

    def put(self) -> Callable[[], None]:
        """Puts these modules in the place of the session's. Returns the function that undoes it."""
        importlib.invalidate_caches()
        self._other_threads = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}
        finders, path, session = [*sys.meta_path], [*sys.path], self._present()
        # The session may have imported a library of the same name as one of these modules.
        session |= {name: sys.modules[name] for name in self._modules if name in sys.modules}

        def undo() -> None:
            present = self._present()
            if self in sys.meta_path:
                self._modules, self._path = present, [*sys.path]
                sys.meta_path.remove(self)
                sys.meta_path[:0] = [one for one in finders if isinstance(one, OwnModules)]
            _exchange(present, session)
            sys.path[:] = path

        _exchange(session, self._modules)
        sys.path[:] = self._path
        # Finders of other entries would find their own versions of the files.
        sys.meta_path[:] = [self, *(one for one in finders if not isinstance(one, OwnModules))]
        return undo

    def _present(self) -> dict[str, ModuleType]:
        """Returns the user's modules that Python would import now without executing them."""
        return {name: module for name, module in sys.modules.copy().items() if self._is_own(name, module)}

    def _is_own(self, name: str, module: ModuleType) -> bool:
        if module is sys.modules.get("__main__") or name in self._foreign:
            return False
        if file := file_of(module):
            if (name, file) not in self._known:
                self._known[name, file] = self._belongs(name, real_path(file))
            return self._known[name, file]
        told = attributes_of(module)
        try:
            folders = [*(told.get("__path__") or ())]
        except (AttributeError, KeyError):  # its package is not there, perhaps because its import failed
            return True
        if folders:  # of a package without `__init__.py`
            return all(self._belongs(name, Path(one).resolve()) for one in folders)
        if "__path__" in told:  # such as a package that an editable install maps to another folder
            return any(one.startswith(f"{name}.") for one in self._names)
        return name in self._names  # the module has put another object in its place


class _OwnLoader(SourceFileLoader):
    """Loader that reads a module's file once, and neither reads nor writes bytecode.

    Old bytecode could be executed: Python compares only the time in seconds and the size of the source.
    """

    own: OwnModules

    def path_stats(self, path: str) -> Any:
        """Raises an OSError: without a source's time, Python ignores bytecode."""
        raise OSError

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Refuses a module that no file names. Lets Python make all other modules."""
        self.own.require(Path(self.path).resolve())
        return super().create_module(spec)

    def get_data(self, path: str) -> bytes:
        """Returns the content of a file; that of the module's own file is as it was at the first time."""
        if path != self.path:
            return super().get_data(path)
        file = Path(path).resolve()
        if file not in self.own.contents:
            self.own.contents[file] = super().get_data(path)
        return self.own.contents[file]

    def exec_module(self, module: ModuleType) -> None:
        """Executes the module. Import statements within its functions will find its own modules too.

        If a function imports the module, its parts are not registered: the study has begun.
        """
        found = module.__dict__["__builtins__"] = {**vars(builtins), "__import__": self.own.import_later}
        with collecting(self.own.contents) if self.own.is_loaded else contextlib.nullcontext():
            super().exec_module(module)
        # The module may have added a function to `builtins`.
        found.update({**vars(builtins), "__import__": found["__import__"]})
        self.own.note_generators(module)


@functools.cache
def _own_kind(kind: type[SourceFileLoader]) -> type[_OwnLoader]:
    """Returns a class of loaders that also do what `kind` does, such as inserting checks of types."""
    return type(kind.__name__, (_OwnLoader, kind), {})


def _own_loader(loader: SourceFileLoader, own: OwnModules) -> _OwnLoader:
    found: Any = copy.copy(loader)
    found.__class__ = _own_kind(type(loader))
    found.own = own
    return found


def _states_of(module: ModuleType) -> dict[str, bytes]:
    """Returns the states of the random generators among a module's global variables, by file and name."""
    found = {}
    for name, value in attributes_of(module).copy().items():
        # `isinstance` would ask a lazy object for its class, and so execute it.
        if issubclass(type(value), random.Random):
            # Not `value.getstate()`, because `SystemRandom` raises an error there.
            found[name] = pickle.dumps(random.Random.getstate(value))
        elif issubclass(type(value), np.random.RandomState):
            found[name] = pickle.dumps(value.get_state(legacy=False))
        elif issubclass(type(value), np.random.Generator):
            found[name] = pickle.dumps(value.bit_generator.state)
    return {f"{file_of(module)}: {name}": state for name, state in found.items()}


def _exchange(old: dict[str, ModuleType], new: dict[str, ModuleType]) -> None:
    for name in old:
        sys.modules.pop(name, None)
    sys.modules.update(new)
