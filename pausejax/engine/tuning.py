"""How a study's work lies on the devices: as the study began, as was measured before, or measured now.

What the fastest way is depends on the device; the results agree to float32 rounding whatever is chosen. There
are two questions: how a group's learning lies there, which its kind of study tries out, and how many runs are
put side by side. Measuring may take a tenth of what the study is expected to take, and a minute at most;
where that leaves a question less than three seconds it is not measured.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich import box
from rich.table import Table

from pausejax import measured
from pausejax.devices import SHARED, compile_for, local_devices, put, runs_mesh
from pausejax.engine import kept
from pausejax.engine.engine import Engine
from pausejax.engine.memory import is_out_of_memory, program_memory
from pausejax.engine.speed import matrix_product_rate
from pausejax.study.study import Group, Plan
from pausejax.study.trials import Found, Layout, Trials, best_of, descend

SHARE, MOST_SECONDS, LEAST_SECONDS = 0.1, 60.0, 3.0
"""Of the time that a study is expected to take, and seconds, that measuring may take."""
_RUNS = tuple(4**power for power in range(2, 9))


class Question(NamedTuple):
    """Something to be decided for some groups."""

    key: str
    groups: Sequence[Group]
    usual: Callable[[], Layout]
    """What is done where nobody has measured."""
    trials: Callable[[], Trials] | None
    """None: there is nothing to try."""
    sound: Callable[[Layout], bool]


class Answer(NamedTuple):
    """What was decided, and where it comes from."""

    groups: Sequence[Group]
    """Who asked."""
    layout: Layout
    source: str
    found: Found | None = None
    """What was tried, if it was now."""


class Decided(NamedTuple):
    """What holds for the groups of a study."""

    runs: dict[int, int]
    """Runs side by side at most, by the group's number."""
    answers: dict[str, Answer]
    """By question."""

    @property
    def layouts(self) -> dict[str, Layout]:
        """The answers alone, named by devices too."""
        return {place(key): dict(answer.layout) for key, answer in self.answers.items()}


class Asked(NamedTuple):
    """What may be used to answer."""

    settled: Mapping[str, Layout] = {}
    """Of the study's folder, named by `place`."""
    kept: bool = True
    """What was measured on such devices before."""
    seconds: float | None = 0.0
    """To measure in; None: as many as the study is worth."""
    most: int | None = None
    """Runs side by side, where that is not asked."""


def table(plan: Plan, decided: Decided) -> Table:
    """Everything that was tried, the chosen ones in bold type."""
    found = Table(box=box.SIMPLE_HEAD)
    for heading in ("program", "layout", "a round of a run, µs", "of the usual"):
        found.add_column(heading, justify="left" if heading in ("program", "layout") else "right")
    for answer in decided.answers.values():
        who = ", ".join(dict.fromkeys(plan.runs_of(group)[0].policy for group in answer.groups))
        tried = answer.found.tried if answer.found else {}
        usual = next(iter(tried.values()), None)
        for values, seconds in tried.items():
            layout = dict(zip(answer.layout, values, strict=True))
            told = ", ".join(f"{name} {value}" for name, value in layout.items())
            best = "[bold]" if layout == answer.layout else ""
            found.add_row(
                who, best + told, f"{seconds * 1e6:,.1f}", f"{seconds / usual:.2f}" if usual else ""
            )
        if not tried:
            told = ", ".join(f"{name} {value}" for name, value in answer.layout.items())
            found.add_row(who, told, "", answer.source)
    return found


def place(key: str) -> str:
    """A question's name in a study's folder: other devices may have other answers."""
    return f"{local_devices()}: {key}"


def decide(engine: Engine, groups: Iterable[Group], asked: Asked, *, again: bool = False) -> Decided:
    """Decides how some groups lie on the local devices, and has the engine play them so.

    Args:
      engine: of the plan.
      groups: of the plan.
      asked: what may be used.
      again: measure what has been measured too.

    Raises:
      SpecError: a group can't be built, or not even one run of it fits.
    """
    groups = list(groups)
    for group in groups:
        engine.check_memory(group)
    decided = Decided({}, {})
    learning, widths = _of_learning(engine, groups), _of_runs(engine, groups)
    questions = [*learning, *(widths if asked.most is None else [])]
    worth = _seconds(engine, questions, asked, again=again)
    for question in learning:
        answer = _answer(question, asked, worth.get(question.key, 0.0), again=again)
        decided.answers[question.key] = answer
        for group in question.groups:
            engine.place(group, answer.layout)
    for question in widths:
        if asked.most is None:
            answer = _answer(question, asked, worth.get(question.key, 0.0), again=again)
            decided.answers[question.key] = answer
        (group,) = question.groups
        runs = asked.most or answer.layout["runs"]
        decided.runs[group.number] = int(runs)
    for group in groups:
        engine.origins[group.number] = _told(group, learning, widths, decided)
    return decided


def _told(group: Group, learning: Sequence[Question], widths: Sequence[Question], decided: Decided) -> str:
    """Where the answers for a group come from; of several, how learning lies counts."""
    asked = [question.key for question in (*learning, *widths) if group in question.groups]
    return next((decided.answers[key].source for key in asked if key in decided.answers), "")


def _answer(question: Question, asked: Asked, seconds: float, *, again: bool) -> Answer:
    if (layout := asked.settled.get(place(question.key))) and question.sound(layout):
        return Answer(question.groups, layout, "as the study began")
    if not again and asked.kept and (layout := kept.read(question.key)) and question.sound(layout):
        return Answer(question.groups, layout, "measured on such a device before")
    if not seconds or not question.trials:
        return Answer(question.groups, question.usual(), "not measured")
    begun = time.monotonic()
    found = descend(question.trials(), seconds)
    kept.write(question.key, found.layout)
    told = f"measured on this device in {time.monotonic() - begun:.1f} s"
    return Answer(question.groups, found.layout, told, found)


def _seconds(engine: Engine, questions: Sequence[Question], asked: Asked, *, again: bool) -> dict[str, float]:
    """What measuring may take, by question: shares of the whole as the groups' own of the study."""
    if asked.seconds is not None:
        return {question.key: asked.seconds for question in questions}
    open_ = [
        question
        for question in questions
        if question.trials
        and place(question.key) not in asked.settled
        and (again or kept.read(question.key) is None)
    ]
    if not open_:
        return {}
    plan, peak = engine.plan, matrix_product_rate()
    expected = {
        group.number: plan.study.kind.seconds(plan, group, engine.simulation(group), peak)
        for group in {group.number: group for question in questions for group in question.groups}.values()
    }
    allowed = min(SHARE * sum(expected.values()), MOST_SECONDS)
    weights = {q.key: sum(expected[group.number] for group in q.groups) for q in open_}
    whole = sum(weights.values()) or 1.0
    shares = {key: allowed * weight / whole for key, weight in weights.items()}
    return {key: share for key, share in shares.items() if share >= LEAST_SECONDS}


def _of_learning(engine: Engine, groups: Sequence[Group]) -> list[Question]:
    plan = engine.plan
    found: dict[str, Question] = {}
    for group in groups:
        variants = plan.study.kind.variants(plan, group, engine.sources)
        if variants is None:
            continue
        if before := found.get(variants.key):
            both = before.trials and engine.simulation(group).data_shares == 1
            trials = before.trials if both else None
            found[variants.key] = before._replace(groups=[*before.groups, group], trials=trials)
            continue

        def usual(group: Group = group) -> Layout:
            return engine.simulation(group).layout

        # Its small programs hold all training data; what is sharded may not fit so.
        trials = variants.trials if engine.simulation(group).data_shares == 1 else None
        found[variants.key] = Question(variants.key, [group], usual, trials, variants.sound)
    return list(found.values())


def _of_runs(engine: Engine, groups: Sequence[Group]) -> list[Question]:
    def question(group: Group) -> Question:
        return Question(
            _runs_key(engine, group),
            [group],
            lambda: {"runs": measured.most_runs(jax.default_backend())},
            (lambda: _trials(engine, group)) if len(group.members) > _RUNS[1] else None,
            lambda layout: layout.keys() == {"runs"} and type(layout["runs"]) is int and layout["runs"] > 0,
        )

    return [question(group) for group in groups]


def _runs_key(engine: Engine, group: Group) -> str:
    study = engine.plan.study
    told = {
        "algorithm": group.algorithm,
        "static": dict(group.static),
        "mode": study.mode,
        "eval_every": study.eval_every,
        "shape": study.kind.shape(engine.plan.runs_of(group)[0].values),
        "runs": min(len(group.members), _RUNS[-1]).bit_length() // 2,
        "use": sorted(source.digest for source in study.parts.sources),
    }
    return f"runs {sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()[:16]}"


def _trials(engine: Engine, group: Group) -> Trials:
    """Whole programs, played for a few rounds, with more or fewer runs side by side."""
    study, count = engine.plan.study, len(group.members)
    start = measured.most_runs(jax.default_backend())
    # More than there are runs is all of them.
    options = sorted({*(runs for runs in _RUNS if runs < 4 * count), start})

    def seconds(layout: Layout) -> float:
        width = min(int(layout["runs"]), count)
        simulation = engine.simulation(group)
        rounds = min(study.eval_every, simulation.rounds, simulation.rounds_per_call)
        try:
            call = compile_for(engine.lower(group, width))
            if program_memory(call) > engine.limit:
                return float("inf")
            rows = np.minimum(np.arange(simulation.padded(width)), width - 1)
            mesh = runs_mesh(len(rows))
            ends = tuple(put(jnp.int32(number), mesh, SHARED) for number in (1, rounds))
            arguments = simulation.arguments(rows)
            return best_of(
                lambda state: call(*arguments, state, *ends), lambda: (simulation.start(rows),)
            ) / (width * rounds)
        except jax.errors.JaxRuntimeError as error:
            if not is_out_of_memory(error):
                raise
            return float("inf")

    return Trials({"runs": start}, {"runs": options}, seconds)
