"""Makes mutants, small wrong versions of a module, from a list or from the module's syntax tree."""

import ast
import difflib
import itertools
import re
from typing import NamedTuple


class Mutant(NamedTuple):
    """A mistake in one place of one file."""

    name: str
    file: str
    """Path of the file in the checkout."""
    old: str
    """Text that the mutant replaces. The file has it once, or `line` gives the first of its whole lines."""
    new: str
    means: str = ""
    tests: tuple[str, ...] = ()
    """Test files or single tests that should fail, the most likely first."""
    line: int = 0
    """Number of the first line of `old`, from 1; 0 if the file has the text once."""

    @property
    def title(self):
        return self.name if not self.line else f"{self.file}:{self.line} {difference(self.old, self.new)}"

    def apply(self, text):
        """Returns the text of the file with the mistake.

        Raises:
          ValueError: the text lacks `old`, or has it more than once.
        """
        if self.line:
            lines, old = text.split("\n"), self.old.split("\n")
            place = slice(self.line - 1, self.line - 1 + len(old))
            if lines[place] != old:
                raise ValueError(f"{self.file}:{self.line}: must have the text {self.old!r}, but has not")
            lines[place] = self.new.split("\n")
            return "\n".join(lines)
        if (count := text.count(self.old)) != 1:
            raise ValueError(
                f"{self.name}: {self.file} must have {self.old!r} once, but has it {count} times"
            )
        return text.replace(self.old, self.new)


def difference(old, new):
    """Formats the change of a line as `old -> new`, without the beginning and end that both share."""
    same = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    changed = [op for op in same if op[0] != "equal"]
    first, last = changed[0], changed[-1]
    begin = max(old.rfind(" ", 0, first[1]), 0)
    return f"{old[begin : last[2] + 12].strip()!r} -> {new[begin : last[4] + 12].strip()!r}"


_OPERATORS = {
    "+": ("-",), "-": ("+",), "*": ("/",), "/": ("*",), "//": ("*", "/"), "%": ("*", "//"), "**": ("*",),
    "&": ("|",), "|": ("&",), "@": (),
}  # fmt: skip
_COMPARISONS = {
    "<": ("<=", ">"), "<=": ("<", ">="), ">": (">=", "<"), ">=": (">", "<="), "==": ("!=",), "!=": ("==",),
    "is": ("is not",), "is not": ("is",), "in": ("not in",), "not in": ("in",),
}  # fmt: skip
_DECLARATIONS = (
    "Parameter", "Metric", "Variable", "series", "get_args", "_number", "_positive", "_reward", "_seconds",
)  # fmt: skip
_TYPES = ("Annotated", "Literal", "Callable")
_LOOKS = (
    "strict", "help", "label", "color", "fontsize", "linewidth", "linestyle", "marker", "markersize", "alpha",
    "elinewidth", "linthresh", "layout", "figsize", "ncols", "frameon", "handlelength", "pad", "stacklevel",
    "s", "zorder", "edgecolors", "facecolors", "labelsize", "ha", "va", "rotation",
)  # fmt: skip
"""Arguments that change no number, but only the look of a picture or the strictness of a check."""
_SYMMETRIC = ("max", "min", "maximum", "minimum", "hypot", "logical_and", "logical_or", "array_equal", "gcd")
_NAMES = {
    "maximum": "minimum", "minimum": "maximum", "max": "min", "min": "max", "sum": "max", "mean": "sum",
    "any": "all", "all": "any", "argmin": "argmax", "argmax": "argmin", "floor": "ceil", "ceil": "floor",
    "nanmax": "nanmin", "sqrt": "square", "square": "abs", "logical_and": "logical_or", "sin": "cos",
    "isinf": "isnan", "isfinite": "isnan", "log": "log1p", "exp": "expm1", "sort": "asarray",
}  # fmt: skip


def draw(root, rooms, rng):
    """Yields a mutant for each place in the syntax trees of some rooms, in random order.

    Code that no run computes has no mutants: annotations, texts, messages of errors, declarations of
    parameters.
    """
    places = []
    for room in rooms:
        base = root / "pausejax" / room
        files = [base] if base.suffix == ".py" else sorted(base.rglob("*.py"))
        for path in files:
            text = path.read_text(encoding="utf-8")
            places += [(path.relative_to(root).as_posix(), text, place) for place in _places(text)]
    rng.shuffle(places)
    for file, text, (begin, end, choices) in places:
        changed = text[:begin] + rng.choice(choices) + text[end:]
        first = text.count("\n", 0, begin)
        last = text.count("\n", 0, end)
        grown = changed.count("\n") - text.count("\n")
        old = "\n".join(text.split("\n")[first : last + 1])
        new = "\n".join(changed.split("\n")[first : last + 1 + grown])
        yield Mutant("", file, old, new, line=first + 1)


def _places(text):
    """Returns (begin, end, replacements) of each place in a module that a mutant may change."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    lines = text.splitlines(keepends=True)

    def at(line, column):
        # Columns of the tree count bytes.
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    def span(node):
        return at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset)

    found = []
    for node in _computed(ast.parse(text)):
        found += _changes(node, text, span)
    return found


def _computed(node):
    """Yields the nodes below a node that a running study computes."""
    skipped = (ast.Raise, ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom, ast.alias)
    for name, child in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases", "type_comment"):
            continue
        for one in child if isinstance(child, list) else [child]:
            if not isinstance(one, ast.AST) or isinstance(one, skipped):
                continue
            called = getattr(one, "func", None)
            name = getattr(called, "attr", getattr(called, "id", ""))
            if name in _DECLARATIONS or (
                isinstance(one, ast.Subscript) and getattr(one.value, "id", "") in _TYPES
            ):
                continue
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant):
                continue
            assigned = getattr(one, "value", None) if isinstance(node, ast.Module) else None
            if isinstance(assigned, ast.BinOp) and isinstance(assigned.op, ast.BitOr):
                continue  # the name of a type
            if isinstance(one, ast.keyword) and one.arg in _LOOKS:
                continue
            yield one
            yield from _computed(one)


def _changes(node, text, span):
    """Yields (begin, end, replacements) of a node or of parts of it."""

    def between(left, right):
        return span(left)[1], span(right)[0]

    def operator(begin, end, table):
        sign = re.sub(r"#.*|[()\s]+", " ", text[begin:end]).strip()
        if choices := table.get(sign):
            place = text.index(sign.split()[0], begin)
            yield place, place + len(sign), choices

    if isinstance(node, ast.BinOp):
        yield from operator(*between(node.left, node.right), _OPERATORS)
    elif isinstance(node, ast.Compare):
        for left, right in zip([node.left, *node.comparators], node.comparators, strict=False):
            yield from operator(*between(left, right), _COMPARISONS)
    elif isinstance(node, ast.BoolOp):
        one, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        begin, end = between(node.values[0], node.values[1])
        place = text.index(one, begin, end)
        yield place, place + len(one), (other,)
    elif isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
        begin = span(node)[0]
        yield begin, begin + (4 if isinstance(node.op, ast.Not) else 1), ("",)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        yield *span(node), (_other(node.value),)
    elif isinstance(node, ast.IfExp):
        yield *span(node.test), (f"not ({text[slice(*span(node.test))]})",)
    elif isinstance(node, ast.Call):
        yield from _calls(node, text, span)
    elif isinstance(node, ast.Attribute) and node.attr in _NAMES:
        end = span(node)[1]
        yield end - len(node.attr), end, (_NAMES[node.attr],)


def _calls(node, text, span):
    """Yields changes of a call: two arguments change places, or an argument is left out."""
    plain = [argument for argument in node.args if not isinstance(argument, ast.Starred)]
    called = getattr(node.func, "attr", getattr(node.func, "id", ""))
    if len(plain) >= 2 and len(plain) == len(node.args) and called not in _SYMMETRIC:
        (a, b), (c, d) = (span(argument) for argument in plain[:2])
        if text[a:b] != text[c:d]:
            yield a, d, (text[c:d] + text[b:c] + text[a:b],)
    everything = [*node.args, *node.keywords]
    for before, argument in itertools.pairwise(everything):
        if isinstance(argument, ast.keyword) and argument.arg not in _LOOKS:
            yield span(before)[1], span(argument)[1], ("",)


def _other(value):
    if isinstance(value, bool):
        return str(not value)
    if isinstance(value, int):
        return str(value + 1)
    return repr(2 * value) if value else "1.0"
