"""Simulation of one group of runs of client selection, as `execution` calls it."""

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from pausejax import measured
from pausejax.clients import costs, exchange, expected_regret, records
from pausejax.clients.build import build_config, dataset_of, files_of, partition_of_seed
from pausejax.clients.held_out import client_metrics
from pausejax.clients.inputs import RELEASE_LIMIT, Hyper, State, World
from pausejax.clients.loop import advance, initial_params, start
from pausejax.clients.variables import client_metric_name
from pausejax.data.host import DataCache
from pausejax.devices import SHARED, SPLIT, padded, put, put_shards, runs_mesh, shapes
from pausejax.federated import batches, kept
from pausejax.federated.batches import EvaluationData, TrainingData
from pausejax.parts import PartError
from pausejax.study.runs import Group, Run
from pausejax.study.simulation import Arrays, Check, DeviceBytes, Layout, Segment
from pausejax.study.spec import SpecError
from pausejax.study.study import Study


class ClientSimulation:
    """Simulation of the runs of one group, which share one `StaticConfig`.

    The constructor builds the arrays that all runs share, on the host. They are put on the devices at
    first use.
    """

    def __init__(
        self,
        study: Study,
        group: Group,
        cache: DataCache,
        devices: Sequence[jax.Device] | None = None,
        layout: Layout | None = None,
    ) -> None:
        """Reads the data and partitions them among the clients.

        Args:
          study: the study.
          group: the group of the study's plan to simulate.
          cache: the data sets in memory.
          devices: the devices of the runs; the local devices if not given. For devices that are not local,
            the program can be lowered but not executed.
          layout: the placement of runs on the devices; taken from the table of measurements if not given.

        Raises:
          SpecError: the data can't be partitioned, or a part refuses its arguments.
        """
        self._study, self._static, self._cache = study, group.static, cache
        self._devices = devices or jax.local_devices()
        self.config = build_config(study, group, cache, self._devices[0].platform, layout)
        self.rounds, self.rounds_per_call = study.rounds, self.config.rounds_per_call
        self.stop_at_latency = study.stop_at_latency
        learning = self.config.learning
        max_width = layout.runs if layout else measured.max_width(self._devices[0].platform)
        self.layout = Layout(max_width, False, *(learning.placement if learning else ()))
        seeds = sorted({run.seed for run in group.runs})
        self._index_of_seed = {seed: index for index, seed in enumerate(seeds)}
        self._data_share, data, test = self._samples(seeds)
        self._files = files = files_of(study, group, cache)
        self._traced = [name for name in group.runs[0].values if study.words.parameters[name].traced]
        self._on_device: tuple[int, Any] | None = None
        self._of_law: dict[tuple[float, ...], tuple[Callable[[np.ndarray], np.ndarray], np.ndarray]] = {}
        self._first = group.runs[:1]
        own: Any = self._inputs_of(self._first)[0]
        if self.config.limits_releases:
            records.refuse_limits(self.config, self._files, self._traced_of(group.runs))
        shared: Any = (files, data, test)
        self.first_world = World(*own, *shared)
        """World of the group's first run, R = 1, on the host. It contains the arrays that all runs share."""
        if study.expected_regret:
            try:
                self._cdf(self._hyper_of(self._first[0]))
            except PartError as error:
                raise SpecError([str(error)]) from error

    def _inputs_of(self, runs: Sequence[Run]) -> tuple[tuple[np.ndarray, ...], dict[str, np.ndarray]]:
        """Returns two values on the host: the arrays seed, data_share and partition of the runs' `World`, and
        the runs' hyper-parameters by name."""
        index = np.array([self._index_of_seed[run.seed] for run in runs], np.int32)
        seeds = np.array([run.seed for run in runs], np.uint32)
        hyper = self._traced_of(runs)
        if self.config.limits_releases:
            hyper[RELEASE_LIMIT] = records.release_limit(self.config, self._files, hyper, self.rounds)
        return (seeds, self._data_share[index], index), hyper

    def _traced_of(self, runs: Sequence[Run]) -> dict[str, np.ndarray]:
        """Returns the runs' traced values by name, float32 [runs], on the host."""
        return {name: np.array([run.values[name] for run in runs], np.float32) for name in self._traced}

    def _hyper_of(self, run: Run) -> Hyper:
        return {name: jnp.float32(values[0]) for name, values in self._inputs_of([run])[1].items()}

    @property
    def input_shards(self) -> int:
        return len(self._devices) if self.config.learning and self.config.learning.sharded else 1

    def sharded(self) -> Self:
        if not self.config.learning or len(self._devices) == 1:
            return self
        other = copy.copy(self)
        learning = dataclasses.replace(self.config.learning, sharded=True)
        other.config, other._on_device = dataclasses.replace(self.config, learning=learning), None
        other.layout = self.layout._replace(sharded=True)
        return other

    def padded(self, width: int) -> int:
        return padded(width, on_all=self.input_shards > 1)

    def _samples(self, seeds: Sequence[int]) -> tuple[np.ndarray, TrainingData | None, EvaluationData | None]:
        """Loads the data, and partitions them among the clients for each of P seeds.

        Returns the clients' data shares, [P, K], the training data with the partitions, and the test data.

        Both data are None in mode "bandit".
        """
        config = self.config
        if not config.learning:
            share = np.full((len(seeds), config.num_clients), 1 / config.num_clients, np.float32)
            return share, None, None
        static, cache = self._static, self._cache
        partitions = [partition_of_seed(self._study, static, seed, cache) for seed in seeds]
        self._partitions = partitions
        if self._study.client_metrics and not any(np.any(part.held_out) for part in partitions):
            held = static["held_out_share"]
            raise SpecError(
                [f"data.held_out_share = {held}: too small. No client has a held-out sample to be tested on"]
            )
        source = dataset_of(self._study, static, cache)
        batch = config.learning.training.eval_batch
        data = batches.training_data(
            cache.make(("inputs", id(source)), lambda: batches.flat(source.train_inputs)),
            source.train_targets,
            batches.scale(source),
            partitions,
        )
        test = cache.make(("test", id(source), batch), lambda: batches.evaluation_data(source, batch))
        return np.stack([part.data_share for part in partitions]), data, test

    def _shared(self, rows: int) -> Any:
        """Puts the arrays that all runs share on the devices that `rows` rows use, and returns them."""
        mesh = self._mesh(rows)
        if self._on_device is None or self._on_device[0] != mesh.size:
            # Groups that use the same samples share one copy on a device.
            data, rest = self.first_world.data, None
            if data:
                self._on_device, shards = None, self.input_shards
                placed = self._cache.make_one(
                    "placed",
                    (id(data.inputs), mesh.size, shards),
                    lambda: put_shards(data.inputs, mesh) if shards > 1 else put(data.inputs, mesh, SHARED),
                )
                rest = put(data._replace(inputs=jnp.zeros(0)), mesh, SHARED)._replace(inputs=placed)
            self._on_device = (
                mesh.size,
                (put(self.first_world.files, mesh, SHARED), rest, put(self.first_world.test, mesh, SHARED)),
            )
        return self._on_device[1]

    def _mesh(self, rows: int) -> Mesh:
        return runs_mesh(rows, self._devices)

    def arguments(self, runs: Sequence[Run]) -> tuple[World, Hyper]:
        own, hyper = put(self._inputs_of(runs), self._mesh(len(runs)), SPLIT)
        return World(*own, *self._shared(len(runs))), hyper

    def argument_shapes(self, rows: int) -> tuple[World, Hyper]:
        """Returns the shapes, types and shardings of `arguments` for `rows` rows."""
        mesh, world = self._mesh(rows), self.first_world
        own, hyper = shapes(self._inputs_of(self._first), mesh, SPLIT, rows=rows)
        files, data, test = shapes((world.files, world.data, world.test), mesh, SHARED)
        if self.input_shards > 1:
            samples = mesh.size * -(-len(data.inputs) // mesh.size)
            data = data._replace(inputs=shapes(data.inputs, mesh, SPLIT, rows=samples))
        shared: Any = (files, data, test)
        return World(*own, *shared), hyper

    def state_shapes(self, rows: int) -> State:
        world, hyper = self.argument_shapes(rows)
        learning = self.config.learning
        params = jax.eval_shape(initial_params, learning.model, world.seed) if learning else None
        state = jax.eval_shape(start, self.config, world, hyper, params)
        return shapes(state, self._mesh(rows), SPLIT)

    def turns(self) -> Mapping[str, float]:
        return costs.turns(self)

    def trace(self, rows: int) -> jax.stages.Traced:
        mesh, config = self._mesh(rows), self.config
        round_number = shapes(jax.ShapeDtypeStruct((), jnp.int32), mesh, SHARED)
        arguments, state = self.argument_shapes(rows), self.state_shapes(rows)
        traced = advance.trace(config, mesh, *arguments, state, round_number, round_number)
        if self.input_shards > 1:
            exchange.check(traced.jaxpr.jaxpr, config.policy.part.where)
        return traced

    def lower(self, rows: int) -> jax.stages.Lowered:
        return self.trace(rows).lower()

    def start(self, runs: Sequence[Run]) -> State:
        world, hyper = self.arguments(runs)
        learning = self.config.learning
        params = initial_params(learning.model, world.seed) if learning else None
        return put(start(self.config, world, hyper, params), self._mesh(len(runs)), SPLIT)

    def to_host(self, first_round: int, positions: np.ndarray, record: Any) -> Segment:
        segment = records.to_host(first_round, positions, record, self.rounds)
        records.refuse(self.config, segment, record)
        return segment

    def running(self, segments: Sequence[Segment], positions: np.ndarray) -> np.ndarray:
        return records.running(segments, positions, self.stop_at_latency)

    def finish(self, segments: Sequence[Segment], state: State, runs: Sequence[Run], check: Check) -> Arrays:
        learning = self.config.learning
        metric, positions = learning.task.metric_name if learning else "test_accuracy", np.arange(len(runs))
        arrays, releases = records.finish(self._study, segments, positions, self.config.num_clients, metric)
        (_, data_share, partition_index), hyper = self._inputs_of(runs)
        ledger = records.ledger(self.config, self._files, hyper, releases)
        arrays |= {name: values for name, values in ledger.items() if name in self._study.outputs.variables}
        if self._study.expected_regret:
            arrays["expected_regret"] = self._expected_regret(runs, arrays, check)
        if not learning:
            return arrays
        last = (state.params, state.memory, hyper, self._files, data_share)
        if self._study.keep_models:
            found = kept.vectors(learning, *last)
            arrays |= {name: values for name, values in found._asdict().items() if values is not None}
        if self._study.client_metrics:
            source = dataset_of(self._study, self._static, self._cache)
            name = client_metric_name(learning.task)
            arrays[name] = client_metrics(learning, source, self._partitions, partition_index, *last)
        return arrays

    def _expected_regret(self, runs: Sequence[Run], arrays: Arrays, check: Check) -> np.ndarray:
        """Returns the regret against the cohort with the largest expected reward, float32 [n, rounds]."""
        config, found = self.config, np.full(arrays["elapsed"].shape, np.nan, np.float32)
        for place, run in enumerate(runs):
            check()
            hyper = self._hyper_of(run)
            played = int((~np.isnan(arrays["elapsed"][place])).sum())
            speed_of, table = self._speeds(hyper)
            found[place, :played] = expected_regret.regrets(
                arrays["selected"][place, :played],
                table=table,
                speed_of=speed_of,
                data_share=self._data_share[self._index_of_seed[run.seed]],
                clients_per_round=config.clients_per_round,
                objective=config.objective(hyper),
            )
        return found

    def _cdf(self, hyper: Hyper) -> expected_regret.Cdf:
        """Returns the distribution functions of one run's latencies.

        Raises:
          PartError: the latency law has no distribution functions, or they are wrong.
        """
        law, part = self.config.build_law(hyper, self.first_world.files), self.config.law.part
        if law.cdf is None:
            wanted = "expected_regret needs a latency law that has a cdf and independent clients"
            raise PartError(f"{part.where}: {wanted}")
        cdf = jax.jit(law.cdf)
        if part.outside and (problem := expected_regret.problem_of(cdf, float(hyper["min_latency"]))):
            raise PartError(f"{part.where}: {problem}")
        return cdf

    def _speeds(self, hyper: Hyper) -> tuple[Callable[[np.ndarray], np.ndarray], np.ndarray]:
        """Returns `expected_speed` of one latency law, and its values for all cohorts, float64 [S].

        Runs with the same latency law share both results.
        """
        law = tuple(float(hyper[name]) for name in (*self.config.law.traced, "min_latency") if name in hyper)
        if law not in self._of_law:
            speed_of = expected_regret.expected_speed(self._cdf(hyper), float(hyper["min_latency"]))
            sets = expected_regret.cohorts(self.config.num_clients, self.config.clients_per_round)
            self._of_law[law] = speed_of, speed_of(sets)
        return self._of_law[law]

    def model_bytes(self) -> int:
        if not (self.config.learning and self._study.keep_models):
            return 0
        model, own = kept.lengths(self.config.learning)
        return 4 * (model + self.config.num_clients * own)

    def device_bytes(self) -> DeviceBytes:
        return costs.device_bytes(self)

    def release(self) -> None:
        self._on_device = None
