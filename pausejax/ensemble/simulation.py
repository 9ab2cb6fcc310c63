"""One group of runs of an ensemble study as the engine plays it."""

from collections.abc import Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from pausejax.data.host import Sources
from pausejax.devices import SHARED, SPLIT, padded, put, runs_mesh, shapes
from pausejax.ensemble.experts import fit_pool, stream_length
from pausejax.ensemble.play import Program, State, World, play, start
from pausejax.ensemble.policies import Hyper
from pausejax.ensemble.pool import Pool
from pausejax.ensemble.regression_data import RegressionData
from pausejax.ensemble.simulate import Runs, check_runs, hyper_of, one_pass, world_of
from pausejax.study.simulation import Arrays, Resident, Segment, bytes_of
from pausejax.study.spec import SpecError
from pausejax.study.study import Group, Plan
from pausejax.study.trials import Layout

_POOL_OPTIONS = ("fit_fraction", "ridge", "feature_scaling", "kernel_parameters")
_ROUNDS_PER_CALL = 100


class EnsembleSimulation:
    """Runs of one policy on one pool; as `study.simulation.Simulation`."""

    stop_at_latency = 0.0
    placement = ""
    layout: Layout = {}  # noqa: RUF012, never written to
    data_shares = 1

    def __init__(
        self, plan: Plan, group: Group, sources: Sources, devices: Sequence[jax.Device] | None = None
    ) -> None:
        """Reads the data and fits the pool; for the local devices if no others are given.

        Raises:
          SpecError: data are missing or wrong, or too few for so many clients.
        """
        study = plan.study
        self._devices = devices or jax.local_devices()
        self.rounds = rounds_of(plan, group, sources)
        self._every = study.eval_every
        self._pool = _pool(plan, group, sources)
        self._runs = _settings(plan, group, self.rounds)
        try:
            runs = check_runs(self._runs, len(self._pool.parameters))
        except ValueError as error:
            raise SpecError([str(error)]) from None
        self._hyper = hyper_of(runs, self._pool)
        self._distinct = len(np.unique(runs.seed))
        records = min(max(_ROUNDS_PER_CALL // self._every, 1), self.rounds // self._every)
        self.rounds_per_call = records * self._every
        self._program = Program(
            policy=study.parts.get(study.kind.policies, group.algorithm),
            rounds=self.rounds,
            num_clients=group.static["num_clients"],
            record_every=self._every,
            records_per_call=records,
            max_uplink=int(runs.uplink.max()),
        )
        self._read = frozenset(plan.runs_of(group)[0].values)

    def _world(self, rows: np.ndarray) -> tuple[World, jax.Array]:
        return world_of(self._pool, self._runs.seed[rows], min(len(rows), self._distinct))

    def sharded(self) -> Self:
        return self

    def padded(self, width: int) -> int:
        return padded(width)

    def _mesh(self, width: int) -> Mesh:
        return runs_mesh(width, self._devices)

    def _own(self, rows: np.ndarray) -> Hyper:
        return Hyper(*(field[rows] for field in self._hyper))

    def lower(self, width: int) -> jax.stages.Lowered:
        mesh = self._mesh(width)
        rows = np.zeros(width, int)
        world = jax.eval_shape(lambda: self._world(rows)[0])
        index = jax.ShapeDtypeStruct((width,), jnp.int32)
        number = shapes(jax.ShapeDtypeStruct((), jnp.int32), mesh, SHARED)
        return play.lower(
            self._program,
            mesh,
            shapes(world, mesh, SHARED),
            shapes(self._own(rows), mesh, SPLIT),
            shapes(index, mesh, SPLIT),
            self.state_shapes(width),
            number,
            number,
        )

    def state_shapes(self, width: int) -> State:
        rows = np.zeros(width, int)
        world = jax.eval_shape(lambda: self._world(rows)[0])
        state = jax.eval_shape(start, self._program, world, self._own(rows))
        return shapes(state, self._mesh(width), SPLIT)

    def arguments(self, rows: np.ndarray) -> tuple[Any, ...]:
        mesh = self._mesh(len(rows))
        world, index = self._world(rows)
        return put(world, mesh, SHARED), put(self._own(rows), mesh, SPLIT), put(index, mesh, SPLIT)

    def start(self, rows: np.ndarray) -> State:
        world, _ = self._world(rows)
        hyper = jax.tree.map(jnp.asarray, self._own(rows))
        return put(start(self._program, world, hyper), self._mesh(len(rows)), SPLIT)

    def to_host(self, first_round: int, rows: np.ndarray, record: dict[str, jax.Array]) -> Segment:
        last = min(first_round + self.rounds_per_call - 1, self.rounds)
        count = (last + 1 - first_round) // self._every
        # Counts only grow, so the last ones say it all.
        kept = {
            name: leaf[count - 1 if name == "sent_counts" else 0 : count] for name, leaf in record.items()
        }
        records = {name: np.moveaxis(np.asarray(leaf), 0, 1) for name, leaf in kept.items()}
        return Segment(first_round, last, rows, records)

    def running(self, segments: Sequence[Segment], rows: np.ndarray) -> np.ndarray:
        return np.ones(len(rows), bool)

    def finish(self, segments: Sequence[Segment], rows: np.ndarray) -> Arrays:
        series = {
            name: np.concatenate([segment.records[name][: len(rows)] for segment in segments], axis=1)
            for name in segments[0].records
        }
        series["sent_counts"] = series["sent_counts"][:, -1]
        rates = {
            name: np.asarray(getattr(self._runs, name), np.float64)[rows]
            if name in self._read
            else np.full(len(rows), np.nan)
            for name in ("learning_rate", "exploration_rate")
        }
        costs = np.broadcast_to(self._pool.costs.astype(np.float32), (len(rows), len(self._pool.costs)))
        played = np.full(len(rows), self.rounds, np.int32)
        return {
            **series,
            **rates,
            "model_cost": np.array(costs),
            "rounds_played": played,
        }

    def resident(self) -> Resident:
        shared = {"predictions": self._pool.predictions.nbytes, "targets": self._pool.targets.nbytes}
        return Resident(shared, {"state": bytes_of(self.state_shapes(1))})

    def release(self) -> None:
        """Nothing stays on the devices between two calls."""


def _table(plan: Plan, group: Group, sources: Sources) -> RegressionData:
    name = group.static["dataset"]
    part = plan.study.parts.get("regression_dataset", name)
    return sources.read(("table", name), lambda: part.build(data_dir=sources.data_dir))


def _pool(plan: Plan, group: Group, sources: Sources) -> Pool:
    static = group.static
    options = {name: static[name] for name in _POOL_OPTIONS}
    key = ("pool", static["dataset"], static["pool_seed"], *options.values())
    try:
        table = _table(plan, group, sources)
        return sources.make(key, lambda: fit_pool(table, seed=static["pool_seed"], **options))
    except ValueError as error:
        raise SpecError([str(error)]) from None


def rounds_of(plan: Plan, group: Group, sources: Sources) -> int:
    """T; without one, as many rounds as the stream lasts, in whole steps of the record.

    Raises:
      SpecError: data are missing or wrong, or too few for so many clients.
    """
    dataset, num_clients = group.static["dataset"], group.static["num_clients"]
    try:
        rows = stream_length(len(_table(plan, group, sources).targets), group.static["fit_fraction"])
    except ValueError as error:
        raise SpecError([str(error)]) from None
    if num_clients > rows:
        problem = f"must be <= {rows}, the samples of {dataset} that no model is fitted on"
        raise SpecError([f"network.num_clients = {num_clients}: {problem}"])
    every = plan.study.eval_every
    return plan.study.rounds or max(one_pass(rows, num_clients) // every, 1) * every


def _settings(plan: Plan, group: Group, rounds: int) -> Runs:
    runs = plan.runs_of(group)

    def column(name: str, default: float = 0.0) -> np.ndarray:
        """The runs' values; the default where the spec says 0 or the policy does not read the parameter."""
        return np.array([run.values.get(name) or default for run in runs])

    return Runs(
        seed=np.array([run.seed for run in runs]),
        learning_rate=column("learning_rate", rounds**-0.5),
        exploration_rate=column("exploration_rate", rounds**-0.5),
        budget=column("budget"),
        uplink=column("uplink"),
        spending=column("spending", 1.0),
    )
