"""Simulation of one group of runs of an ensemble study, as `execution` calls it."""

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from pausejax import measured
from pausejax.data.host import DataCache
from pausejax.devices import SHARED, SPLIT, padded, put, runs_mesh, shapes
from pausejax.ensemble.experts import fit_pool, stream_length
from pausejax.ensemble.loop import State, StaticConfig, World, advance, start
from pausejax.ensemble.policies import Hyper
from pausejax.ensemble.pool import Pool
from pausejax.ensemble.regression_data import RegressionData, checked
from pausejax.ensemble.simulate import Runs, check_runs, hyper_of, one_pass, world_of
from pausejax.parts import File, Part
from pausejax.parts.check import expect_type
from pausejax.study.runs import Group, Run, on_host
from pausejax.study.simulation import Arrays, Check, DeviceBytes, Layout, Segment, bytes_of
from pausejax.study.spec import SpecError
from pausejax.study.study import Study

_POOL_OPTIONS = ("fit_fraction", "ridge", "feature_scaling", "kernel_parameters")
_ROUNDS_PER_CALL = 100


class EnsembleSimulation:
    """Simulation of a group of runs, which share one policy, one pool of models and one `StaticConfig`."""

    stop_at_latency = 0.0
    input_shards = 1

    def __init__(
        self,
        study: Study,
        group: Group,
        cache: DataCache,
        devices: Sequence[jax.Device] | None = None,
        layout: Layout | None = None,
    ) -> None:
        """Reads the data and fits the pool. The devices are the local ones if not given.

        Raises:
          SpecError: the data are missing or wrong, or have fewer rows than clients.
        """
        self._devices = devices or jax.local_devices()
        self.layout = layout or Layout(measured.max_width(self._devices[0].platform))
        self.rounds = rounds_of(study, group, cache)
        self._every = study.eval_every
        self._pool = _pool(study, group, cache)
        try:
            runs = check_runs(_settings(group.runs, self.rounds), len(self._pool.parameters))
        except ValueError as error:
            raise SpecError([str(error)]) from error
        policy = study.parts.get(study.kind.policy_category, group.algorithm)
        self._traced, statics = _own_values(study, group, policy)
        self._distinct = len(np.unique(runs.seed))
        records = min(max(_ROUNDS_PER_CALL // self._every, 1), self.rounds // self._every)
        self.rounds_per_call = records * self._every
        self._config = StaticConfig(
            policy=policy,
            rounds=self.rounds,
            num_clients=group.static["num_clients"],
            record_every=self._every,
            records_per_call=records,
            max_uplink=int(runs.uplink.max()),
            statics=statics,
        )
        self._first = group.runs[0]

    def _world(self, runs: Sequence[Run]) -> tuple[World, jax.Array]:
        seeds = np.array([run.seed for run in runs])
        return world_of(self._pool, seeds, min(len(runs), self._distinct))

    def sharded(self) -> Self:
        return self

    def padded(self, width: int) -> int:
        return padded(width)

    def _mesh(self, rows: int) -> Mesh:
        return runs_mesh(rows, self._devices)

    def _own(self, runs: Sequence[Run]) -> Hyper:
        own: Any = {name: np.array([run.values[name] for run in runs], np.float32) for name in self._traced}
        checked = check_runs(_settings(runs, self.rounds), len(self._pool.parameters))
        return hyper_of(checked, self._pool)._replace(own=own)

    def turns(self) -> Mapping[str, float]:
        return {"rounds": self._every}

    def lower(self, rows: int) -> jax.stages.Lowered:
        return self.trace(rows).lower()

    def trace(self, rows: int) -> jax.stages.Traced:
        mesh = self._mesh(rows)
        runs = [self._first] * rows
        world = jax.eval_shape(lambda: self._world(runs)[0])
        index = jax.ShapeDtypeStruct((rows,), jnp.int32)
        number = shapes(jax.ShapeDtypeStruct((), jnp.int32), mesh, SHARED)
        return advance.trace(
            self._config,
            mesh,
            shapes(world, mesh, SHARED),
            shapes(self._own(runs), mesh, SPLIT),
            shapes(index, mesh, SPLIT),
            self.state_shapes(rows),
            number,
            number,
        )

    def state_shapes(self, rows: int) -> State:
        runs = [self._first] * rows
        world = jax.eval_shape(lambda: self._world(runs)[0])
        state = jax.eval_shape(start, self._config, world, self._own(runs))
        return shapes(state, self._mesh(rows), SPLIT)

    def arguments(self, runs: Sequence[Run]) -> tuple[Any, ...]:
        mesh = self._mesh(len(runs))
        world, index = self._world(runs)
        return put(world, mesh, SHARED), put(self._own(runs), mesh, SPLIT), put(index, mesh, SPLIT)

    def start(self, runs: Sequence[Run]) -> State:
        world, _ = self._world(runs)
        hyper = jax.tree.map(jnp.asarray, self._own(runs))
        return put(start(self._config, world, hyper), self._mesh(len(runs)), SPLIT)

    def to_host(self, first_round: int, positions: np.ndarray, record: dict[str, jax.Array]) -> Segment:
        last = min(first_round + self.rounds_per_call - 1, self.rounds)
        count = (last + 1 - first_round) // self._every
        # Counts are cumulative, so only the latest counts are kept.
        kept = {
            name: leaf[count - 1 if name == "sent_counts" else 0 : count] for name, leaf in record.items()
        }
        records = {name: np.moveaxis(np.asarray(leaf), 0, 1) for name, leaf in kept.items()}
        return Segment(first_round, last, positions, records)

    def running(self, segments: Sequence[Segment], positions: np.ndarray) -> np.ndarray:
        return np.ones(len(positions), bool)

    def finish(self, segments: Sequence[Segment], state: State, runs: Sequence[Run], check: Check) -> Arrays:
        series = {
            name: np.concatenate([segment.records[name][: len(runs)] for segment in segments], axis=1)
            for name in segments[0].records
        }
        series["sent_counts"] = series["sent_counts"][:, -1]
        settings = _settings(runs, self.rounds)
        rates = {
            name: np.asarray(getattr(settings, name), np.float64)
            if name in self._first.values
            else np.full(len(runs), np.nan)
            for name in ("learning_rate", "exploration_rate")
        }
        costs = np.broadcast_to(self._pool.costs.astype(np.float32), (len(runs), len(self._pool.costs)))
        played = np.full(len(runs), self.rounds, np.int32)
        return {
            **series,
            **rates,
            "model_cost": np.array(costs),
            "rounds_played": played,
        }

    def model_bytes(self) -> int:
        return 0

    def device_bytes(self) -> DeviceBytes:
        shared = {"predictions": self._pool.predictions.nbytes, "targets": self._pool.targets.nbytes}
        return DeviceBytes(shared, {"state": bytes_of(self.state_shapes(1))})

    def release(self) -> None:
        """Does nothing, because no array stays on the devices between two calls."""


def _own_values(study: Study, group: Group, policy: Part) -> tuple[list[str], tuple[tuple[str, Any], ...]]:
    """Returns the parameters that a group's policy reads and that are not fields of `Hyper`.

    Returns:
      The names of traced parameters, and the names and values of static parameters.

    Raises:
      SpecError: the policy reads a file.
    """
    parameters = study.words.parameters
    names = sorted((policy.reads & group.runs[0].values.keys()) - set(Hyper._fields[:-1]))
    traced = [name for name in names if parameters[name].traced]
    statics = tuple((name, group.static[name]) for name in names if name not in traced)
    for name, value in statics:
        if isinstance(value, File):
            key = f'{parameters[name].section}.{name} = "{value}"'
            raise SpecError([f"{key}: a policy of ensembles can't have a parameter that is a file"])
    return traced, statics


def _table(study: Study, group: Group, cache: DataCache) -> tuple[Hashable, RegressionData]:
    """Returns a group's data set after its key, which has the name and all values that the data depend on."""
    part = study.parts.get("regression_dataset", group.static["dataset"])
    values = part.values_from(on_host(group.static, study.folder))
    key = ("table", part.name, *(str(value) for value in values.values()))
    return key, cache.read(key, lambda: _load(part, cache.data_dir, values))


def _load(part: Part, data_dir: str | Path | None, values: Mapping[str, Any]) -> RegressionData:
    made = part.build(**values, data_dir=data_dir)
    expect_type(part, made, RegressionData, "pausejax.ensemble.RegressionData")
    return checked(made, part.where)


def _pool(study: Study, group: Group, cache: DataCache) -> Pool:
    static = group.static
    options = {name: static[name] for name in _POOL_OPTIONS}
    try:
        of_table, table = _table(study, group, cache)
        key = ("pool", of_table, static["pool_seed"], *options.values())
        return cache.make(key, lambda: fit_pool(table, seed=static["pool_seed"], **options))
    except ValueError as error:
        raise SpecError([str(error)]) from error


def rounds_of(study: Study, group: Group, cache: DataCache) -> int:
    """Returns T: the spec's `rounds`, or else the rounds of one pass over the stream.

    Raises:
      SpecError: the data are missing or wrong, or have fewer rows than clients; or `eval_every` does not
        divide the rounds of one pass.
    """
    dataset, num_clients = group.static["dataset"], group.static["num_clients"]
    try:
        rows = stream_length(len(_table(study, group, cache)[1].targets), group.static["fit_fraction"])
    except ValueError as error:
        raise SpecError([str(error)]) from error
    if num_clients > rows:
        problem = f"must be <= {rows}, the number of samples of {dataset} that are left after the models' fit"
        raise SpecError([f"network.num_clients = {num_clients}: {problem}"])
    rounds = study.rounds or one_pass(rows, num_clients)
    if rounds % study.eval_every:
        problem = f"must divide {rounds}, the rounds of one pass over {dataset} with {num_clients} clients"
        raise SpecError([f"eval_every = {study.eval_every}: {problem}. Set eval_every = 1, or set rounds"])
    return rounds


def _settings(runs: Sequence[Run], rounds: int) -> Runs:
    # One round would have an exploration rate of 1, which is out of range.
    exploration = max(rounds, 2) ** -0.5

    def column(name: str, default: float = 0.0) -> np.ndarray:
        """Returns the values of a parameter, one for each run.

        The default replaces values that are 0 or that the policy does not read.
        """
        return np.array([run.values.get(name) or default for run in runs])

    return Runs(
        seed=np.array([run.seed for run in runs]),
        learning_rate=column("learning_rate", rounds**-0.5),
        exploration_rate=column("exploration_rate", exploration),
        budget=column("budget"),
        uplink=column("uplink"),
        spending=column("spending", 1.0),
    )
