"""What is shipped: a wheel with every room, its licence and its types, that runs without the checkout."""

import email
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

import pausejax

ROOT = Path(__file__).resolve().parents[1]
VENDORED = ("vega", "vega-lite", "vega-embed")
DATA = (
    "pausejax/measured.json",
    "pausejax/py.typed",
    *(f"pausejax/page/{name}" for name in ("page.css", "page.html", "page.js")),
    *(f"pausejax/page/vendor/{name}.{kind}" for name in VENDORED for kind in ("min.js", "LICENSE")),
    "pausejax/page/vendor/versions.toml",
)
NOT_SHIPPED = (".*", "build", "dist", "out", "*.egg-info", "__pycache__")


def _can_build():
    try:
        return int(version("setuptools").split(".")[0]) >= 77
    except PackageNotFoundError:
        return False


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not _can_build(), reason="building needs setuptools>=77, of the extra test"),
]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """Built of a copy: a build leaves folders behind, which the next one would ship."""
    folder = tmp_path_factory.mktemp("sdist")
    shutil.copytree(ROOT, folder / "source", ignore=shutil.ignore_patterns(*NOT_SHIPPED))
    code = f"from setuptools import build_meta; build_meta.build_sdist({str(folder)!r})"
    built = subprocess.run(
        [sys.executable, "-c", code], cwd=folder / "source", capture_output=True, text=True
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = folder.glob("*.tar.gz")
    return path


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory):
    """Built of the source distribution, so what the one lacks the other lacks too."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    built = subprocess.run([*command, "--wheel-dir", str(folder), str(sdist)], capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = folder.glob("*.whl")
    return path


def test_the_set_up_scripts_need_no_package_index_the_second_time(tmp_path):
    """A copy of the checkout whose .venv has all libraries, as the first time leaves it."""
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT, checkout, ignore=shutil.ignore_patterns(*NOT_SHIPPED, "tests", "docs"))
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(checkout / ".venv")], check=True)
    (packages,) = (checkout / ".venv").glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    script = 'set -euo pipefail; source scripts/environment.sh; install_pausejax "[ray,wandb]"'
    nowhere = {
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_RETRIES": "0",
        "PIP_CONFIG_FILE": os.devnull,
    }
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | nowhere
    done = subprocess.run(
        ["bash", "-c", script], cwd=checkout, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "" and "installing pausejax[ray,wandb] into .venv" in done.stderr
    assert "Requirement already satisfied" not in done.stderr and "Downloading" not in done.stderr
    where = [str(checkout / ".venv/bin/python"), "-c", "import pausejax; print(pausejax.__file__)"]
    found = subprocess.run(where, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str(checkout / "pausejax/__init__.py")


def test_the_wheel_holds_every_room_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    package = {path.relative_to(ROOT).as_posix() for path in (ROOT / "pausejax").rglob("*.py")}
    assert {name for name in names if ".dist-info/" not in name} == package | set(DATA)


def test_the_wheel_says_who_made_it_under_which_licence(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        told = email.message_from_bytes(archive.read(name))
        licence = archive.read(name.replace("METADATA", "licenses/LICENSE")).decode()
        commands = archive.read(name.replace("METADATA", "entry_points.txt")).decode()
    assert licence == (ROOT / "LICENSE").read_text(encoding="utf-8") and "Apache License" in licence
    assert told["License-Expression"] == "Apache-2.0" and told["Author"] == "pausejax contributors"
    assert told["Version"] == pausejax.__version__
    assert told["Description-Content-Type"] == "text/markdown" and told.get_payload().startswith("# pausejax")
    assert "pausejax = pausejax.commands.main:main" in commands


def test_the_wheel_runs_in_an_environment_of_its_own(wheel, tmp_path):
    """The environment has the libraries, and pausejax from the wheel alone."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    python = str(tmp_path / "venv/bin/python")
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index"]
    installed = subprocess.run([*install, "--ignore-installed", str(wheel)], capture_output=True, text=True)
    assert installed.returncode == 0, installed.stderr
    (tmp_path / "spec.toml").write_text(
        'mode = "bandit"\nrounds = 5\n[network]\nnum_clients = 4\nclients_per_round = 2\n'
        '[[policy]]\nname = "pause"\n'
    )
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def said(*command):
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    where = said(python, "-c", "import pausejax; print(pausejax.__file__)")
    assert where == str(packages / "pausejax/__init__.py")
    command = str(tmp_path / "venv/bin/pausejax")
    assert pausejax.__version__ in said(command, "--version")
    said(command, "run", "spec.toml", "--out", "out")
    assert (tmp_path / "out" / "results.zarr").is_dir() and list((tmp_path / "out").glob("*.png"))
    assert "pause" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_the_source_distribution_holds_the_package_and_its_licence(sdist):
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    package = {path.relative_to(ROOT).as_posix() for path in (ROOT / "pausejax").rglob("*.py")}
    assert package | set(DATA) | {"LICENSE", "README.md", "pyproject.toml"} <= names
