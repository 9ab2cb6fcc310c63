"""Does every Python that pyproject.toml names have exact versions of all libraries, within their bounds?"""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NAMED = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d", c)]
EXTRAS = PROJECT["optional-dependencies"]
LAST_WITH_A_HOLE = {
    "jinja2": "3.1.5",
    "mlflow-skinny": "3.14.0",
    "pillow": "12.2.0",
    "playwright": "1.55.0",
    "pyarrow": "23.0.0",
    "pytest": "9.0.2",
    "ray": "2.55.1",
    "setuptools": "82.0.1",
}
"""By GitHub's advisories of the CVEs beside the floors in pyproject.toml."""


def exact_versions(python):
    lines = (ROOT / f"constraints-py{python.replace('.', '')}.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pairs}


def requirements():
    """Of the package, of the tests, and of the compiler for GPUs."""
    lines = [*PROJECT["dependencies"], *EXTRAS["test"], *EXTRAS["gpu-plan"]]
    for requirement in map(Requirement, lines):
        if requirement.name == "pausejax":
            lines = [line for extra in requirement.extras for line in EXTRAS[extra]]
            yield from map(Requirement, lines)
        else:
            yield requirement


@pytest.mark.parametrize("python", NAMED)
def test_a_python_that_is_named_has_exact_versions_of_everything(python):
    versions = exact_versions(python)
    environment = {"python_version": python, "sys_platform": "linux", "platform_system": "Linux"}
    for requirement in requirements():
        if requirement.marker is None or requirement.marker.evaluate(environment):
            version = versions.get(canonicalize_name(requirement.name))
            assert version is not None, f"{requirement.name} has no exact version"
            assert requirement.specifier.contains(version), f"{requirement}: not {version}"


def test_the_files_of_exact_versions_are_those_of_the_pythons_that_are_named():
    files = {path.name for path in ROOT.glob("constraints-*.txt")}
    assert files == {f"constraints-py{python.replace('.', '')}.txt" for python in NAMED}
    page = (ROOT / "docs" / "installation.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in files)


@pytest.mark.parametrize("name", LAST_WITH_A_HOLE)
def test_a_floor_keeps_out_releases_with_published_holes(name):
    bounds = [requirement.specifier for requirement in requirements() if requirement.name == name]
    assert bounds and not any(bound.contains(LAST_WITH_A_HOLE[name]) for bound in bounds)
