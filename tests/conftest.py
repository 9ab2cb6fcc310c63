"""Settings shared by every test: strict promotion, two CPU devices, and the switch for slow tests."""

import functools
import gc
import os
import shutil
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")


def _tell_xla(**flags):
    """Adds flags to `XLA_FLAGS` where it doesn't name them; XLA reads them when it first compiles."""
    given = os.environ.get("XLA_FLAGS", "")
    own = [f"--{name}={str(value).lower()}" for name, value in flags.items() if name not in given]
    os.environ["XLA_FLAGS"] = " ".join([given, *own]).strip()


_tell_xla(xla_force_host_platform_device_count=2)
# Compiling is most of what the tests cost, and hardly any of their programs runs for long: XLA takes the
# shortest way to machine code. Modules that ask about rounding are marked `optimized`.
_IN_A_HURRY: dict[str, object] = {"xla_backend_optimization_level": 0}
_AS_FOR_USERS: dict[str, object] = {"xla_backend_optimization_level": 3}

import jax
import pytest
from hypothesis import settings
from jax._src import compiler
from jax._src.interpreters import mlir

from pausejax.execution.compilation_cache import check_programs

if jax.__version_info__ < (0, 11):  # later ones don't know a flag, and XLA aborts where it doesn't know one
    _IN_A_HURRY |= {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1}
    _AS_FOR_USERS["xla_cpu_use_fusion_emitters"] = True

# No test cuts the power, and some file systems take long to make sure of a file.
os.fsync = lambda descriptor: None

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

# Compiled programs are kept inside the checkout, the many small ones too: a second run of the tests spends no
# time on XLA, and one module gets what another has compiled.
_CACHE = Path(__file__).resolve().parents[1] / ".cache"
os.environ.setdefault("PAUSEJAX_CACHE_DIR", str(_CACHE))
# A list of fonts in the user's own folder may be of another time, and matplotlib warns of each that it lacks.
os.environ.setdefault("MPLCONFIGDIR", str(_CACHE / "matplotlib"))
jax.config.update("jax_compilation_cache_dir", str(_CACHE / "compiled"))
check_programs(str(_CACHE / "compiled"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)

# An example that compiles, or shares its core with another process, takes as long as it takes.
# The same examples every time: what was green stays green until the code or its test changes.
settings.register_profile("tests", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile("tests")

_CHROMIUM_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

SHARED = Path(__file__).resolve().parents[2] / "shared"


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")
    attacks = parser.getgroup("attacks", "how often tests/faults attack")
    attacks.addoption("--mutations", type=int, help="mutated specs: 25, with --slow 100")
    attacks.addoption("--damages", type=int, help="damaged files: 6, with --slow 30")
    attacks.addoption("--kills", type=int, default=6, help="kills, with --slow")
    attacks.addoption("--forgeries", type=int, default=30, help="forged results, with --slow")
    attacks.addoption("--readers", type=int, default=50, help="readers beside a writer, with --slow")
    attacks.addoption("--first-seed", type=int, default=0, help="of the attacks")


def pytest_configure(config):
    slow = config.getoption("--slow")
    for name, few, many in (("mutations", 25, 100), ("damages", 6, 30)):
        if getattr(config.option, name) is None:
            setattr(config.option, name, many if slow else few)
    _tell_xla(**_IN_A_HURRY)
    jax.config.update("jax_traceback_in_locations_limit", 0)


def pytest_collection_modifyitems(config, items):
    if config.getoption("--slow"):
        return
    skip = pytest.mark.skip(reason="slow: run with --slow")
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(skip)


def pytest_collection_finish():
    """What is imported stays, and tracing makes many objects that live: to look at them all is dear."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


@pytest.fixture(scope="module", autouse=True)
def _compiler(request):
    """Compiles a module as for users if it is marked `optimized`, and forgets each module's programs.

    A worker would otherwise end with every program of the suite in its memory. What a program is written in
    takes longer to set up than a small program to compile: a module's programs share it.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mlir, "make_ir_context", functools.cache(mlir.make_ir_context))
        if request.node.get_closest_marker("optimized"):
            patch.setattr(compiler, "get_compile_options", _as_for_users)
        yield
    jax.clear_caches()


@pytest.fixture(scope="module")
def compiled_once():
    """Programs are compiled for the first of a module's studies that play them: nobody asks about that."""
    from pausejax.clients.simulation import ClientSimulation

    known, lower = {}, ClientSimulation.lower

    class Once:
        def __init__(self, lowered):
            self.compile = functools.cache(lowered.compile)

    def once(simulation, width):
        key = (simulation.config, width)
        if key not in known:
            known[key] = Once(lower(simulation, width))
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClientSimulation, "lower", once)
        yield


@pytest.fixture
def own_parts(monkeypatch):
    """What a test registers is gone after it; the package's own parts are there before."""
    from pausejax import kinds, parts

    assert kinds.KINDS
    monkeypatch.setattr(parts.registered_parts(), "_own", dict(parts.registered_parts()._own))


def _as_for_users(*args, _options=compiler.get_compile_options, **kwargs):
    options = _options(*args, **kwargs)
    options.env_option_overrides = [*options.env_option_overrides, *_AS_FOR_USERS.items()]
    return options


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data and reference traces; tests that need it skip where it is missing."""
    if not SHARED.is_dir():
        pytest.skip("the shared folder with real data and reference traces is not beside the checkout")
    return SHARED


@pytest.fixture(scope="session")
def chromium():
    """Debian's chromium, driven by Playwright."""
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if not path:
        pytest.skip("no chromium here: apt-get install chromium, or CHROMIUM=path")
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright, of the extra test")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=list(_CHROMIUM_FLAGS))
        yield browser
        browser.close()
