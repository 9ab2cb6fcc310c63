"""docs/equations.md leaves out no equation and names what exists; a number says whose paper it is from."""

import ast
import io
import pkgutil
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGE = (ROOT / "docs" / "equations.md").read_text(encoding="utf-8")
PAUSE, EFL_FG = (re.findall(r"^\| .*", part, re.MULTILINE)[2:] for part in PAGE.split("\n## ")[1:])

# What of a page or a source file can refer to an equation: (14), (9a), (A.16); no call's argument, and no
# number in code.
NUMBER = re.compile(r"(?<![\w\])`])\((?:A\.)?\d{1,2}[ab]?\)")
RESULT = re.compile(r"\b(?:Algorithm|Theorem|Lemma) \d+")


def numbers(rows: list[str], prefix: str) -> set[int]:
    """The equations that rows have in their first column, spans filled in."""
    first = " ".join(row.split("|")[1] for row in rows)
    found = set()
    for low, high in re.findall(rf"\({prefix}(\d+)[ab]?\)(?:–\({prefix}(\d+)\))?", first):
        found |= set(range(int(low), int(high or low) + 1))
    return found


def text_of(path: Path) -> str:
    """The prose of a page without its code, or the strings and comments of a module; one line."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        kinds = (tokenize.STRING, tokenize.COMMENT)
        found = tokenize.generate_tokens(io.StringIO(text).readline)
        text = "\n".join(token.string.replace("\\n", " ") for token in found if token.type in kinds)
    elif path.suffix == ".md":
        text = re.sub(r"```.*?```|`[^`\n]*`", " ", text, flags=re.DOTALL)
    return " ".join(text.replace("\n#", "\n").split())


def bare(text: str) -> list[str]:
    """References without the paper's name directly before them."""
    found = [match for pattern in (NUMBER, RESULT) for match in pattern.finditer(text)]
    return [match.group() for match in found if not text[: match.start()].endswith("EFL-FG ")]


@pytest.mark.parametrize(("rows", "prefix", "last"), [(PAUSE, "", 20), (PAUSE, r"A\.", 16), (EFL_FG, "", 35)])
def test_every_equation_has_a_row(rows, prefix, last):
    assert numbers(rows, prefix) == set(range(1, last + 1))


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        (PAUSE, "Definition 1,Theorem 1,Theorem 2,Theorem 3,Theorem 4,Lemma 1,Lemma A.1,Lemma A.2"),
        (PAUSE, "Algorithm 1,Algorithm 2,Algorithm 3,R1,R2,N1,N2,Table I"),
        (EFL_FG, "Algorithm 1,Algorithm 2,Theorem 1,Lemma 2,Lemma 3,Table I"),
    ],
)
def test_every_algorithm_theorem_and_lemma_has_a_row(rows, names):
    first = [row.split("|")[1] for row in rows]
    for name in names.split(","):
        assert any(re.search(rf"{re.escape(name)}\b", column) for column in first), name


@pytest.mark.parametrize("row", PAUSE + EFL_FG, ids=lambda row: row.split("|")[1].strip())
def test_every_function_and_test_of_a_row_exists(row):
    _, _, _, function, test, _ = re.split(r"(?<!\\)\|", row)
    functions = re.findall(r"`(pausejax\.[\w.]+)`", function)
    tests = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", test)
    assert (functions and tests) or "not used" in function
    for name in functions:
        assert callable(pkgutil.resolve_name(name))
    for path, name in tests:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, name


@pytest.mark.parametrize(
    "path",
    [
        *sorted((ROOT / "pausejax" / "ensemble").glob("*.py")),
        *sorted((ROOT / "tests" / "ensemble").glob("*.py")),
        *sorted((ROOT / "sweeps").glob("efl_fg*.toml")),
        ROOT / "scripts" / "ensemble_table1.py",
        ROOT / "scripts" / "bench" / "ensemble.py",
        ROOT / "docs" / "ensemble.md",
    ],
    ids=lambda path: path.name,
)
def test_what_is_about_ensembles_names_the_paper_at_every_number(path):
    assert bare(text_of(path)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_number_of_a_page_is_one_that_the_paper_has(page):
    for number in re.findall(r"\((\d+)[ab]?\)", " ".join(re.findall(r"EFL-FG \(\d+[ab]?\)", text_of(page)))):
        assert 1 <= int(number) <= 35


def test_a_bare_number_is_seen_and_a_call_is_not():
    assert bare("the sum of (6), see Lemma 2; EFL-FG (8) and EFL-FG Lemma 2") == ["(6)", "Lemma 2"]
    assert bare("range(5) x[i](3) (a3) (n) `f`(2) (2022)") == []
