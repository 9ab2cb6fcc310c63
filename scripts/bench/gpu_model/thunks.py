"""Parses XLA's dump of a program's thunks: kernels, CUDA graphs, loops and conditionals.

The dump (`*.thunk_sequence_after_thunk_passes.txt`) says which thunks are in which graph. So launches and
synchronisations can be counted without knowledge of XLA's rules.
"""

import re
from dataclasses import dataclass, field

GRAPH, LOOP, CHOICE, SLICED = "kCommandBuffer", "kWhile", "kConditional", "kDynamicSliceFusion"
_THUNK = re.compile(r"^( *)\d{3,}: (k\w+)\s*\[[^\]]*\]\s*([^\s,]*)")
_REGION = re.compile(r"^ *(condition|body|false_branch|true_branch|branch_\d+):\s*$")


@dataclass
class Thunk:
    kind: str
    name: str
    """Name of the thunk's kernel."""
    regions: dict[str, list["Thunk"]] = field(default_factory=dict)
    """Inner thunks: a graph's kernels under "", a loop's condition and body, or a conditional's branches."""

    def walk(self):
        """Yields the thunk and all thunks inside it."""
        yield self
        for region in self.regions.values():
            for thunk in region:
                yield from thunk.walk()


def read(text: str) -> list[Thunk]:
    """Returns the program's thunks, in order.

    Raises:
      ValueError: a line is not understood.
    """
    top: list[Thunk] = []
    open_: list[tuple[int, list[Thunk], Thunk | None]] = [(-1, top, None)]
    for line in text.splitlines():
        line = line.replace("No thunks.", "")  # an empty region, on whose line the next region begins
        if not line.strip():
            continue
        if region := _REGION.match(line):
            # XLA does not indent "condition:", at any depth of its loop.
            indent = len(line) - len(line.lstrip())
            wanted = CHOICE if "branch" in region.group(1) else LOOP
            while not (_last(open_).kind == wanted and (indent == 0 or open_[-1][0] < indent)):
                open_.pop()
            owner = _last(open_)
            open_.append((open_[-1][0], owner.regions.setdefault(region.group(1), []), owner))
            continue
        found = _THUNK.match(line)
        if not found:
            raise ValueError(f"no thunk: {line!r}")
        depth, thunk = len(found.group(1)), Thunk(found.group(2), found.group(3))
        while open_[-1][0] >= depth:
            open_.pop()
        open_[-1][1].append(thunk)
        if thunk.kind in (GRAPH, SLICED):
            open_.append((depth, thunk.regions.setdefault("", []), thunk))
        elif thunk.kind in (LOOP, CHOICE):
            open_.append((depth, [], thunk))
    return top


def _last(open_: list[tuple[int, list[Thunk], Thunk | None]]) -> Thunk:
    owner = open_[-1][2]
    if owner is None:
        raise ValueError("a region without its loop or choice")
    return owner
