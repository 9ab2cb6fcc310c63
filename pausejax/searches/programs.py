"""The compiled programs of a search: which there are, how they are made, and how wide they may be."""

from typing import Any, NamedTuple

import jax

from pausejax import measured
from pausejax.data.host import Sources
from pausejax.devices import compile_for
from pausejax.engine import events, memory
from pausejax.parts import PartError
from pausejax.searches.goal import Goal
from pausejax.searches.lanes import Compiled, Lanes
from pausejax.searches.options import Options, step_of
from pausejax.searches.space import Space
from pausejax.study.plan import plan_of
from pausejax.study.simulation import Refillable
from pausejax.study.spec import SpecError
from pausejax.study.study import Study

# Samplers learn from one batch for the next, so a budget comes to at least so many.
_BATCHES = 32
# Where programs, or workers, share the lanes, they are cut into so many blocks, and not into narrower ones.
_BLOCKS, _LEAST_LANES = 8, 8

Key = tuple[Any, ...]


class Cut(NamedTuple):
    """How the lanes of a search are cut; it is part of what decides the result."""

    blocks: int
    """The most that are played at a time."""
    width: int
    """Settings side by side in each."""


class Programs:
    """Makes each program once, for blocks of one width.

    Args:
      space: what is chosen from.
      sources: where data come from.
      options: what is asked.
    """

    def __init__(self, space: Space, sources: Sources, options: Options) -> None:
        self._space, self._sources, self._options = space, sources, options
        self._limit = options.device_memory or memory.device_memory()
        self._settings = space.programs()
        self._compiled: dict[tuple[Key, int], Compiled] = {}

    @property
    def keys(self) -> list[Key]:
        """What each program is made of."""
        return list(self._settings)

    @property
    def study(self) -> Study:
        """What is searched."""
        return self._space.study

    def check(self) -> None:
        """Traces every program, so that what can't be built is refused at once.

        Raises:
          SpecError: as `compiled`.
        """
        for key in self.keys:
            self._lowered(key, 1)

    def lanes(self, key: Key, width: int) -> Lanes:
        """Empty lanes for so many settings of a program."""
        study = self._space.study
        return Lanes(lambda: self.compiled(key, width), width, study.seeds, step_of(study))

    def compiled(self, key: Key, width: int) -> Compiled:
        """The program for so many settings side by side.

        Raises:
          SpecError: it can't be built, or the kind of study does not search.
        """
        if (key, width) not in self._compiled:
            self._compiled[key, width] = self._compile(key, width)
        return self._compiled[key, width]

    def _compile(self, key: Key, width: int) -> Compiled:
        simulation, lowered = self._lowered(key, width)
        lanes, policy = simulation.padded(width * len(self.study.seeds)), self._settings[key][0].policy
        call = compile_for(lowered)
        told = f"compiled {policy} for {width} settings side by side"
        events.say("compiled", told, policy=policy, width=lanes)
        return Compiled(simulation, call)

    def _lowered(self, key: Key, width: int) -> tuple[Refillable, jax.stages.Lowered]:
        study, settings = self._space.study, self._settings[key]
        # Settings that together stand at the ends of everything.
        runs = [run for setting in settings for run in setting.runs(study)]
        plan = plan_of(study, runs)
        simulation = study.kind.simulation(plan, plan.groups[0], self._sources)
        if not isinstance(simulation, Refillable):
            what = "has no search; only studies of client selection do"
            raise SpecError([f'mode = "{study.mode}": {what}'])
        seeds = list(study.seeds) * width
        values = [settings[0].values] * len(seeds)
        try:
            simulation = memory.place_data(simulation, self._limit, self._options.data_placement)
            lanes = simulation.padded(len(seeds))
            return simulation, simulation.with_runs(seeds, values).lower_by_row(lanes, step_of(study))
        except PartError as error:
            raise SpecError([str(error)]) from None
        except ValueError as error:
            raise SpecError([f"policy {settings[0].policy}: {error}"]) from None

    def cut(self, goal: Goal, options: Options, *, shared: bool) -> Cut:
        """How lanes are cut: as many as the devices are good for and have memory for, and a few batches.

        Args:
          goal: what settings are judged by.
          options: what is asked.
          shared: whether several workers play the blocks.

        Raises:
          SpecError: as `compiled`.
        """
        study = self._space.study
        seeds, step = len(study.seeds), step_of(study)
        wide = max((options.most or measured.most_runs(jax.default_backend())) // seeds, 1)
        if options.most is None:
            shares = [1.0 / options.stopping**rung for rung in range(len(goal.rungs))]
            lengths = [b - a for a, b in zip((0.0, *goal.rungs), goal.rungs, strict=False)]
            share = sum(a * b for a, b in zip(shares, lengths, strict=True)) / goal.rungs[-1]
            rounds = max(share * study.rounds, step)
            wide = min(wide, max(int(options.budget / (seeds * rounds * _BATCHES)), 1))
        while True:
            cut = _cut(wide, seeds, len(self.keys), shared=shared)
            used = max(memory.program_memory(self.compiled(key, cut.width).call) for key in self.keys)
            if cut.blocks * used <= self._limit or wide == 1:
                return cut
            wide //= 2
            self._compiled.clear()


def _cut(wide: int, seeds: int, programs: int, *, shared: bool) -> Cut:
    if programs == 1 and not shared:
        return Cut(1, wide)
    blocks = max(_BLOCKS, 2 * programs)
    width = min(max(wide // blocks, -(-_LEAST_LANES // seeds)), wide)
    return Cut(max(wide // width, 1), width)
