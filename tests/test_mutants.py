"""The list of mutants keeps up with the code, and fresh ones are programs that differ in one place."""

import ast
import random
import tomllib
from pathlib import Path

import pytest

from .programs import load

ROOT = Path(__file__).resolve().parents[1]
LIST = tomllib.loads((ROOT / "scripts" / "mutants.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def mutation():
    return load("scripts/mutation.py")


def has_test(name):
    """Whether there is such a folder, file, or test in a file."""
    path, _, test = name.partition("::")
    if not test:
        return (ROOT / path).exists()
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("entry", LIST["mutant"], ids=lambda entry: entry["name"])
def test_every_mutant_of_the_list_can_still_be_made_and_has_its_tests(mutation, entry):
    mutant = mutation.Mutant(**entry)
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    changed = mutant.apply(text)
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text))
    assert mutant.tests and all(map(has_test, mutant.tests))


def test_names_are_given_once():
    names = [entry["name"] for entry in LIST["mutant"]]
    assert len(set(names)) == len(names)


def test_every_room_of_the_core_has_tests():
    for room, files in LIST["tests"].items():
        assert (ROOT / "pausejax" / room).exists() and files and all(map(has_test, files)), room


@pytest.mark.slow
def test_fresh_mutants_are_programs_that_differ_in_one_place(mutation):
    drawn = list(mutation.draw(ROOT, ["bandit.py", "regret.py", "privacy/"], random.Random(0)))
    assert len(drawn) > 200
    for mutant in drawn:
        text = (ROOT / mutant.file).read_text(encoding="utf-8")
        changed = mutant.apply(text)
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text)), mutant.title
    again = mutation.draw(ROOT, ["bandit.py", "regret.py", "privacy/"], random.Random(0))
    assert drawn == list(again)


def test_a_mutant_that_has_lost_its_place_is_refused(mutation):
    with pytest.raises(ValueError, match="must have 'a' once, but has it 2 times"):
        mutation.Mutant("twice", "x.py", "a", "b").apply("a a")
    with pytest.raises(ValueError, match="must have the text"):
        mutation.Mutant("", "x.py", "a", "b", line=2).apply("a\nc\n")
