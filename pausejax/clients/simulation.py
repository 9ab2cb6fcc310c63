"""One group of runs of client selection as the engine plays it."""

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from pausejax.clients import exchange, expected_regret, records
from pausejax.clients.build import build_program, dataset_of, files_of, partition_of
from pausejax.clients.learning import layout_of
from pausejax.clients.play import initial_params, play, start
from pausejax.clients.program import Hyper, Program, State, World
from pausejax.clients.round import Record
from pausejax.data.host import Sources
from pausejax.devices import SHARED, SPLIT, padded, put, put_shares, runs_mesh, shapes
from pausejax.federated import batches
from pausejax.federated.batches import HeldOut, TrainingData
from pausejax.parts import PartError
from pausejax.policies.base import Clients, View
from pausejax.study.simulation import Arrays, Resident, Segment, bytes_of
from pausejax.study.study import Group, Plan
from pausejax.study.trials import Layout


class ClientSimulation:
    """Runs that share one `Program`; as `study.simulation.Simulation`.

    The world is built once, on the host; what all rows share is put on the devices when it is needed first.
    """

    def __init__(
        self,
        plan: Plan,
        group: Group,
        sources: Sources,
        devices: Sequence[jax.Device] | None = None,
        layout: Layout | None = None,
    ) -> None:
        """Reads the data and shares them out.

        Args:
          plan: the study.
          group: of it.
          sources: where data come from.
          devices: what the runs are for, the local ones if not given; for others it can be lowered alone.
          layout: how learning lies on them, as `federated.placement.Placement`.

        Raises:
          SpecError: the data can't be shared out, or a part refuses the rest.
        """
        self._study, self._static, self._sources = plan.study, group.static, sources
        self._devices = devices or jax.local_devices()
        self.program = build_program(plan, group, sources, self._devices[0].platform, layout)
        self.rounds, self.rounds_per_call = plan.study.rounds, self.program.rounds_per_call
        self.stop_at_latency = plan.study.stop_at_latency
        learning = self.program.learning
        self.layout = layout_of(learning) if learning else {}
        self.placement = f"up to {self.layout['lanes']} clients trained at a time" if learning else ""
        runs = plan.runs_of(group)
        seeds = sorted({run.seed for run in runs})
        self._row_of = {seed: row for row, seed in enumerate(seeds)}
        self._share, self._data, self._test = self._samples(seeds)
        self._files = files_of(plan.study, group.static, sources)
        self._traced = [name for name in runs[0].values if plan.study.words.parameters[name].traced]
        self._on_device: tuple[int, Any] | None = None
        self._of_law: dict[tuple[float, ...], tuple[Callable[[np.ndarray], np.ndarray], np.ndarray]] = {}
        self._fill([run.seed for run in runs], [run.values for run in runs])
        if self._study.expected_regret and runs:
            self._cdf({name: jnp.float32(values[0]) for name, values in self.hyper.items()})

    def _fill(self, seeds: Sequence[int], values: Sequence[Mapping[str, Any]]) -> None:
        rows = np.array([self._row_of[seed] for seed in seeds], np.int32)
        host: dict[str, Any] = {
            "seed": np.array(seeds, np.uint32),
            "data_share": self._share[rows],
            "partition": rows,
            "files": self._files,
            "data": self._data,
            "test": self._test,
        }
        self.world = World(**host)
        self.hyper: dict[str, np.ndarray] = {
            name: np.array([own[name] for own in values], np.float32) for name in self._traced
        }

    def with_runs(self, seeds: Sequence[int], values: Sequence[Mapping[str, Any]]) -> Self:
        other = copy.copy(self)
        other._fill(seeds, values)
        return other

    @property
    def data_shares(self) -> int:
        return len(self._devices) if self.program.learning and self.program.learning.sharded else 1

    def sharded(self) -> Self:
        if not self.program.learning or len(self._devices) == 1:
            return self
        other = copy.copy(self)
        learning = dataclasses.replace(self.program.learning, sharded=True)
        other.program, other._on_device = dataclasses.replace(self.program, learning=learning), None
        return other

    def padded(self, width: int) -> int:
        return padded(width, on_all=self.data_shares > 1)

    def _samples(self, seeds: Sequence[int]) -> tuple[np.ndarray, TrainingData | None, HeldOut | None]:
        """Data shares by seed, [P, K], and the data themselves, if anything is learned."""
        program = self.program
        if not program.learning:
            share = np.full((len(seeds), program.num_clients), 1 / program.num_clients, np.float32)
            return share, None, None
        static, sources = self._static, self._sources
        partitions = [partition_of(self._study, static, seed, sources) for seed in seeds]
        source = dataset_of(self._study, static, sources)
        batch = program.learning.training.eval_batch
        data = batches.training_data(
            sources.make(("inputs", id(source)), lambda: batches.flat(source.train_inputs)),
            source.train_targets,
            batches.scale(source),
            partitions,
        )
        test = sources.make(("test", id(source), batch), lambda: batches.held_out(source, batch))
        return np.stack([part.data_share for part in partitions]), data, test

    def _shared(self, width: int) -> Any:
        """What all rows share, on as many devices as so many rows have."""
        mesh = self._mesh(width)
        if self._on_device is None or self._on_device[0] != mesh.size:
            # The samples lie there once, whichever groups use them.
            data, rest = self.world.data, None
            if data:
                self._on_device, shares = None, self.data_shares
                placed = self._sources.make_one(
                    ("placed", id(data.inputs)),
                    (mesh.size, shares),
                    lambda: put_shares(data.inputs, mesh) if shares > 1 else put(data.inputs, mesh, SHARED),
                )
                rest = put(data._replace(inputs=jnp.zeros(0)), mesh, SHARED)._replace(inputs=placed)
            self._on_device = (
                mesh.size,
                (put(self.world.files, mesh, SHARED), rest, put(self.world.test, mesh, SHARED)),
            )
        return self._on_device[1]

    def _mesh(self, width: int) -> Mesh:
        return runs_mesh(width, self._devices)

    def arguments(self, rows: np.ndarray) -> tuple[World, Hyper]:
        mesh, world = self._mesh(len(rows)), self.world
        own = put((world.seed[rows], world.data_share[rows], world.partition[rows]), mesh, SPLIT)
        hyper = put({name: values[rows] for name, values in self.hyper.items()}, mesh, SPLIT)
        return World(*own, *self._shared(len(rows))), hyper

    def _argument_shapes(self, width: int) -> tuple[World, Hyper]:
        mesh, world = self._mesh(width), self.world
        own = shapes((world.seed, world.data_share, world.partition), mesh, SPLIT, rows=width)
        files, data, test = shapes((world.files, world.data, world.test), mesh, SHARED)
        if self.data_shares > 1:
            rows = mesh.size * -(-len(data.inputs) // mesh.size)
            data = data._replace(inputs=shapes(data.inputs, mesh, SPLIT, rows=rows))
        shared: Any = (files, data, test)
        return World(*own, *shared), shapes(self.hyper, mesh, SPLIT, rows=width)

    def state_shapes(self, width: int) -> State:
        world, hyper = self._argument_shapes(width)
        learning = self.program.learning
        params = jax.eval_shape(initial_params, learning.model, world.seed) if learning else None
        state = jax.eval_shape(start, self.program, world, hyper, params)
        return shapes(state, self._mesh(width), SPLIT)

    def lower(self, width: int) -> jax.stages.Lowered:
        first_round = shapes(jax.ShapeDtypeStruct((), jnp.int32), self._mesh(width), SHARED)
        return self._lower(self.program, width, first_round)

    def lower_by_row(self, width: int, rounds: int) -> jax.stages.Lowered:
        first_round = shapes(jax.ShapeDtypeStruct((width,), jnp.int32), self._mesh(width), SPLIT)
        return self._lower(dataclasses.replace(self.program, rounds_per_call=rounds), width, first_round)

    def _lower(self, program: Program, width: int, first_round: Any) -> jax.stages.Lowered:
        mesh = self._mesh(width)
        last_round = shapes(jax.ShapeDtypeStruct((), jnp.int32), mesh, SHARED)
        arguments, state = self._argument_shapes(width), self.state_shapes(width)
        traced = play.trace(program, mesh, *arguments, state, first_round, last_round)
        if self.data_shares > 1:
            exchange.check(traced.jaxpr.jaxpr, program.policy.part.where)
        return traced.lower()

    def start(self, rows: np.ndarray) -> State:
        world, hyper = self.arguments(rows)
        learning = self.program.learning
        params = initial_params(learning.model, world.seed) if learning else None
        return put(start(self.program, world, hyper, params), self._mesh(len(rows)), SPLIT)

    def to_host(self, first_round: int, rows: np.ndarray, record: Any) -> Segment:
        segment = records.to_host(first_round, rows, record, self.rounds)
        records.refuse(self.program, segment, record.fault)
        return segment

    def running(self, segments: Sequence[Segment], rows: np.ndarray) -> np.ndarray:
        return records.running(segments, rows, self.stop_at_latency)

    def finish(self, segments: Sequence[Segment], rows: np.ndarray) -> Arrays:
        learning = self.program.learning
        metric = learning.task.metric_name if learning else "test_accuracy"
        arrays = records.finish(self._study, segments, rows, self.program.num_clients, metric)
        if self._study.expected_regret:
            arrays["expected_regret"] = self._expected_regret(rows, arrays)
        return arrays

    def _expected_regret(self, rows: np.ndarray, arrays: Arrays) -> np.ndarray:
        """What the runs have lost against the largest expected reward, float32 [n, rounds]."""
        program, found = self.program, np.full(arrays["elapsed"].shape, np.nan, np.float32)
        for place, row in enumerate(rows):
            hyper = {name: jnp.float32(values[row]) for name, values in self.hyper.items()}
            played = int((~np.isnan(arrays["elapsed"][place])).sum())
            speed_of, table = self._speeds(hyper)
            found[place, :played] = expected_regret.regrets(
                arrays["selected"][place, :played],
                table=table,
                speed_of=speed_of,
                data_share=np.asarray(self.world.data_share)[row],
                clients_per_round=program.clients_per_round,
                objective=program.objective(hyper),
            )
        return found

    def _cdf(self, hyper: Hyper) -> expected_regret.Cdf:
        """The distribution functions of one run's latencies.

        Raises:
          PartError: the law brings none.
        """
        law = self.program.build_law(hyper, self.world.files)
        if law.cdf is None:
            part = self.program.law.part
            raise PartError(f"{part.where}: expected_regret needs a law with a cdf, of independent clients")
        return jax.jit(law.cdf)

    def _speeds(self, hyper: Hyper) -> tuple[Callable[[np.ndarray], np.ndarray], np.ndarray]:
        """Expected speeds of any sets, and of all cohorts; runs of the same law share them."""
        read = [name for name in (*self.program.law.traced, "min_latency") if name in hyper]
        law = tuple(float(hyper[name]) for name in read)
        if law not in self._of_law:
            speed_of = expected_regret.expected_speed(self._cdf(hyper), float(hyper["min_latency"]))
            sets = expected_regret.cohorts(self.program.num_clients, self.program.clients_per_round)
            self._of_law[law] = speed_of, speed_of(sets)
        return self._of_law[law]

    def slots(self) -> int:
        """The most clients that a round of a run trains."""
        program, (_, hyper) = self.program, self._argument_shapes(1)
        clients = jnp.ones(program.num_clients)

        def one_round(hyper: Hyper) -> jax.Array:
            key = jax.random.key(0)
            policy = program.build({name: values[0] for name, values in hyper.items()})
            state = policy.init(key, Clients(clients, clients))
            return policy.select(key, state, View(jnp.int32(1), clients, lambda c: clients[c])).members

        return jax.eval_shape(one_round, hyper).shape[0]

    def resident(self) -> Resident:
        world, data, state = self.world, self.world.data, self.state_shapes(1)
        shares = self.data_shares
        inputs = -(-len(data.inputs) // shares) * bytes_of(data.inputs[:1]) if data else 0
        owners = (data.order, data.offset, data.size) if data else ()
        memory = state.optimizer
        rest = state._replace(params=None, optimizer=None)
        # A number of every kind and the cohort, of each round of the call that is played and the one before.
        record = 4 * (len(Record._fields) + self.program.clients_per_round)
        return Resident(
            {
                f"training data (1/{shares} of the inputs)" if shares > 1 else "training data": inputs
                + bytes_of(data.targets if data else ()),
                "test data": bytes_of(world.test),
                "partitions": bytes_of(owners),
                "tables": bytes_of(world.files),
            },
            {
                "parameters": bytes_of(state.params),
                "moments": bytes_of(memory),
                "state": bytes_of(rest),
                "records": 2 * self.rounds_per_call * record,
            },
        )

    def release(self) -> None:
        self._on_device = None
