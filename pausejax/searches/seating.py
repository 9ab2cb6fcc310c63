"""Who sits in which lanes: the share of each program follows what the sampler asks for, by no clock."""

import dataclasses
from typing import Any

from pausejax.searches.lanes import Seat
from pausejax.searches.player import Order
from pausejax.searches.space import Setting, Space


@dataclasses.dataclass
class Trial:
    """A setting that is played, or waits for its lanes."""

    number: int
    setting: Setting
    rung: int = 0
    """The next one."""
    rounds: int = 0
    """Played so far."""


@dataclasses.dataclass
class Block:
    """Lanes side by side in one call of one program; open as long as somebody is there."""

    number: int
    key: tuple[Any, ...]
    """Of the program."""
    seats: list[Trial | None]

    @property
    def trials(self) -> list[Trial]:
        """Who is there, in the order of the seats."""
        return [trial for trial in self.seats if trial]

    @property
    def order(self) -> Order:
        """What a player is told."""
        seats: list[Seat | None] = []
        for one in self.seats:
            seats.append(None if one is None else Seat(one.number, one.setting, one.rung, one.rounds))
        return Order(self.number, self.key, tuple(seats))

    def leave(self, trial: Trial) -> None:
        """Frees the seat of somebody."""
        self.seats[self.seats.index(trial)] = None


class Seating:
    """Blocks of lanes, each of one program as long as somebody is there, then of whichever lacks room.

    Args:
      space: says what program a setting needs.
      most: blocks at a time.
      width: seats of each.
    """

    def __init__(self, space: Space, most: int, width: int) -> None:
        self._space, self._most, self._width = space, most, width
        self.blocks: list[Block] = []
        """In the order in which they were opened."""
        self._waiting: list[Trial] = []
        self._opened = 0

    @property
    def trials(self) -> list[Trial]:
        """Everybody who is seated or waits."""
        return [trial for block in self.blocks for trial in block.trials] + self._waiting

    @property
    def has_room(self) -> bool:
        """Whether one more may come; some may wait, while others take what is free in other programs."""
        return len(self.trials) < self._most * self._width and len(self._waiting) < self._width

    def refill(self, most: int) -> None:
        """Closes empty blocks and seats those who wait, until so many are seated."""
        self.blocks = [block for block in self.blocks if block.trials]
        self._waiting = [trial for trial in self._waiting if not self._seated(trial, most)]

    def enter(self, trial: Trial, most: int) -> None:
        """Seats somebody unless so many are seated already, or lets him wait."""
        if not self._seated(trial, most):
            self._waiting.append(trial)

    def _seated(self, trial: Trial, most: int) -> bool:
        if len(self.trials) - len(self._waiting) >= most:
            return False
        key = self._space.program(trial.setting)
        for block in self.blocks:
            if block.key == key and None in block.seats:
                block.seats[block.seats.index(None)] = trial
                return True
        if len(self.blocks) == self._most:
            return False
        self.blocks.append(Block(self._opened, key, [trial, *[None] * (self._width - 1)]))
        self._opened += 1
        return True
