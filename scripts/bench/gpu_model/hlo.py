"""Parses optimized HLO: computations, instructions, and the bytes and FLOPs of each kernel."""

import math
import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

FREE = frozenset(
    [
        *("parameter", "tuple", "get-tuple-element", "bitcast", "constant", "after-all", "opt-barrier"),
        *("optimization-barrier", "partition-id", "replica-id", "add-dependency", "domain"),
        *("fusion-done", "async-done", "copy-done"),
    ]
)
"""Instructions that launch nothing."""
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{\s*$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*)$")
_ARRAY = re.compile(r"\b(pred|[suf]\d+|bf16|c64|c128)\[([\d,]*)\]")
_SLICES = ("gather", "dynamic-slice", "slice")


class Work(NamedTuple):
    """Bytes and FLOPs of a kernel."""

    bytes: float
    flops: float
    """FLOPs of matrix products and convolutions."""


@dataclass
class Instruction:
    name: str
    type: str
    operation: str
    operands: list[str]
    arguments: str
    """The text between the parentheses."""
    tail: str

    def named(self, key: str) -> str:
        """Returns the value of an attribute `key=value`; "" if the instruction has none."""
        found = re.search(rf"[ ,]{key}=%?([\w.\-]+)", self.tail)
        return found.group(1) if found else ""

    def listed(self, key: str) -> list[str]:
        """Returns the values of an attribute `key={a, b}`."""
        found = re.search(rf"[ ,]{key}=\{{([^}}]*)\}}", self.tail)
        return [x.strip().lstrip("%") for x in found.group(1).split(",") if x.strip()] if found else []

    @property
    def source(self) -> str:
        """Returns the source of an instruction in the program."""
        found = re.search(r'op_name="([^"]*)"', self.tail)
        return found.group(1) if found else ""

    @property
    def trips(self) -> int | None:
        """Returns the number of iterations of a loop if XLA knows it."""
        found = re.search(r'"known_trip_count":\{"n":"(\d+)"', self.tail)
        return int(found.group(1)) if found else None

    @property
    def called(self) -> list[str]:
        """Returns the computations of a loop (condition, body) or of a conditional, in the order of its
        branches."""
        if self.operation == "while":
            return [self.named("condition"), self.named("body")]
        if self.operation == "conditional":
            # The thunks of a conditional with a truth value have this order, whatever names the dump gives
            # them.
            both = [self.named("true_computation"), self.named("false_computation")]
            return self.listed("branch_computations") or both
        name = self.named("to_apply") or self.named("calls")
        return [name] if name else []


def shape_of(type_: str) -> list[int]:
    """Returns the shape of the first array in a type."""
    found = _ARRAY.search(type_)
    return [int(d) for d in found.group(2).split(",") if d] if found else []


def size_of(type_: str) -> int:
    """Returns the bytes of all arrays in a type."""
    total = 0
    for kind, lengths in _ARRAY.findall(type_):
        width = 1 if kind == "pred" else 2 if kind == "bf16" else max(int(kind[1:]) // 8, 1)
        total += width * math.prod(int(d) for d in lengths.split(",") if d)
    return total


class Module:
    """Program with its computations by name, each a list of instructions in the order of execution."""

    def __init__(self, text: str) -> None:
        self.text, self.entry = text, ""
        self.computations: dict[str, list[Instruction]] = {}
        current: list[Instruction] | None = None
        for line in text.splitlines():
            if (head := _COMPUTATION.match(line)) and not line.startswith(" "):
                current = self.computations.setdefault(head.group(2), [])
                self.entry = head.group(2) if head.group(1) else self.entry
            elif line.startswith("}"):
                current = None
            elif current is not None and (found := _INSTRUCTION.match(line)):
                current.append(_instruction(*found.groups()))

    @cached_property
    def work(self) -> dict[str, Work]:
        """Returns the work of every instruction that may be a kernel, by the name of the kernel."""
        return {
            kernel_name(instruction.name): self._work_of(instruction, {i.name: i for i in body})
            for body in self.computations.values()
            for instruction in body
            if instruction.operation not in FREE
        }

    def _work_of(self, instruction: Instruction, beside: dict[str, Instruction]) -> Work:
        if instruction.operation in ("fusion", "fusion-start") and instruction.named("calls"):
            return self._work_of_fusion(instruction)
        read = sum(size_of(beside[name].type) for name in instruction.operands if name in beside)
        return Work(read + size_of(instruction.type), _flops(instruction, beside))

    def _work_of_fusion(self, instruction: Instruction) -> Work:
        """Returns the work of a fusion.

        If an array is sliced, gathered or updated, only the used entries count.
        """
        body = self.computations[instruction.named("calls")]
        beside = {i.name: i for i in body}
        users: dict[str, list[Instruction]] = defaultdict(list)
        for user in body:
            for name in user.operands:
                users[name].append(user)
        read, updated_in_place = 0, 0
        for parameter in (i for i in body if i.operation == "parameter"):
            ends, seen = [], [parameter.name]
            while seen:
                for user in users[seen.pop()]:
                    if user.operation == "bitcast":
                        seen.append(user.name)
                    else:
                        ends.append(user)
            if ends and all(user.operation in _SLICES for user in ends):
                read += sum(size_of(user.type) for user in ends)
            elif (
                ends
                and all(user.operation in ("dynamic-update-slice", "scatter") for user in ends)
                and (size_of(parameter.type) in [size_of(user.type) for user in ends])
            ):
                updated_in_place += size_of(parameter.type)
            else:
                read += size_of(parameter.type)
        for user in body:
            change = {"dynamic-update-slice": 1, "scatter": -1}.get(user.operation)
            if change is not None and user.operands[change] in beside:
                read += 2 * size_of(beside[user.operands[change]].type)
        written = max(size_of(instruction.type) - updated_in_place, 0)
        return Work(read + written, sum(_flops(i, beside) for i in body))


_COLLECTIVE = ("all-", "reduce-scatter", "collective-", "send", "recv", "ragged-all-to-all")


def facts(module: Module) -> dict[str, Any]:
    """Returns facts that tests check: for each, a list of sources in the program or of names."""
    found: dict[str, Any] = {"custom_calls": set(), "callbacks": [], "collectives": [], "float64": []}
    found |= {"unsaid_precision": [], "float_atomics": []}
    for instruction in (i for body in module.computations.values() for i in body):
        operation, tail = instruction.operation, instruction.tail
        if operation == "custom-call":
            target = re.search(r'custom_call_target="([^"]*)"', tail)
            name = target.group(1) if target else "?"
            found["custom_calls"].add(name)
            if "callback" in name:
                found["callbacks"].append(instruction.source)
        elif operation.startswith(_COLLECTIVE):
            found["collectives"].append(instruction.source)
        elif operation in ("dot", "convolution"):
            if "f32" in instruction.type and "operand_precision={highest,highest}" not in tail:
                found["unsaid_precision"].append(instruction.source)
        elif operation == "scatter" and instruction.type.startswith(("f32", "(f32")):
            # If indices repeat, the device's threads decide the order of additions.
            combined = module.computations.get(instruction.named("to_apply"), [])
            adds = any(i.operation not in ("parameter", "bitcast", "tuple") for i in combined)
            if adds and "unique_indices=true" not in tail:
                found["float_atomics"].append(instruction.source)
        if "f64[" in instruction.type:
            found["float64"].append(instruction.source)
    return {name: sorted(set(values)) for name, values in found.items()}


def kernel_name(name: str) -> str:
    """Returns the name of the kernel of an instruction."""
    return re.sub(r"[.\-]", "_", name)


def _instruction(name: str, rest: str) -> Instruction:
    depth, end = 0, len(rest)
    for place, letter in enumerate(rest):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == " " and depth == 0:
            end = place
            break
    tail = rest[end + 1 :]
    operation = tail.split("(", 1)[0]
    depth, close = 0, len(tail)
    for place in range(len(operation), len(tail)):
        depth += (tail[place] == "(") - (tail[place] == ")")
        if depth == 0:
            close = place
            break
    arguments = tail[len(operation) + 1 : close]
    return Instruction(name, rest[:end], operation, re.findall(r"%([\w.\-]+)", arguments), arguments, tail)


def _flops(instruction: Instruction, beside: dict[str, Instruction]) -> float:
    def shape(operand: int) -> list[int]:
        return shape_of(beside[instruction.operands[operand]].type)

    output = math.prod(shape_of(instruction.type))
    if instruction.operation == "dot":
        contracted = (shape(0)[int(d)] for d in instruction.listed("lhs_contracting_dims"))
        return 2.0 * output * math.prod(contracted)
    target = instruction.named("custom_call_target") or instruction.tail
    if instruction.operation == "custom-call" and "gemm" in target:
        contracted = re.search(r'"lhs_contracting_dimensions":\["(\d+)"', instruction.tail)
        return 2.0 * output * shape(0)[int(contracted.group(1))] if contracted else 0.0
    if instruction.operation == "convolution" or "cudnn$conv" in target:
        # Each output needs the kernel's elements of one group and output feature.
        labels = re.search(r"dim_labels=\w+_(\w+)->", instruction.tail)
        features = shape(1)[labels.group(1).index("o")] if labels else 1
        return 2.0 * output * math.prod(shape(1)) / max(features, 1)
    return 0.0
