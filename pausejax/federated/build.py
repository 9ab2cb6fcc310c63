"""Builds the static description of learning from parts, and checks that the parts fit together."""

import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax

from pausejax import parts
from pausejax.data import Dataset
from pausejax.federated import placement, tasks
from pausejax.federated.learning import Learning, LocalTraining
from pausejax.federated.modules import Model, Weights, adapt
from pausejax.federated.optimizers import transformation
from pausejax.federated.placement import ConvVariant, Placement
from pausejax.federated.precision import Precision, in_precision
from pausejax.parts import Bound, PartError
from pausejax.parts.digest import digest_of_made

Made = TypeVar("Made")
TRAINING = (
    "batch_size",
    "local_epochs",
    "max_steps",
    "persist_optimizer",
    "precision",
)


def learning_of(
    registry: parts.Parts,
    static: Mapping[str, Any],
    dataset: Dataset,
    longest: int,
    *,
    traced: Collection[str] = (),
    tables: Mapping[str, tuple[int, ...]] | None = None,
    contents: Mapping[str, str] | None = None,
    backend: str = "",
    chosen: Placement | None = None,
) -> Learning:
    """Builds the static description of learning and checks its parts by shapes alone.

    Args:
      registry: the registry that holds the parts named in `static`.
      static: the static parameters, including the names of the parts (model, task, optimizer, ...).
      dataset: the data set.
      longest: the largest number of samples that any client owns in any run.
      traced: names of the runs' traced parameters.
      tables: shapes of the tables that parts on the device read from files, by parameter name.
      contents: digests of the files that parts on the host read, by full path. A model or task is built
        anew if the content of its file differs.
      backend: the backend, "cpu", "gpu", ...; JAX's default backend if not given.
      chosen: the placement of a run on its device; from `placement.choose` if not given.

    Raises:
      PartError: a part can't be built, or does not fit the other parts; the message is one line.
    """
    tables, contents = tables or {}, contents or {}

    def bound(category: str) -> Bound:
        part = registry.get(category, static[parts.CATEGORIES[category].key])
        on_device = parts.CATEGORIES[category].on_device
        return parts.bind(part, static, traced if on_device else (), complete=on_device)

    def digests(part: Bound) -> tuple[str | None, ...]:
        return tuple(contents.get(value) for _, value in part.statics if isinstance(value, parts.File))

    of_task, of_model = bound("task"), bound("model")
    make_model = functools.partial(_model, of_model, digests(of_model))
    task = _task(of_task, digests(of_task))
    output_shape = tasks.output_shape(of_task.part, task, dataset)
    # This batch size is unlikely to equal another dimension of the samples.
    raw = jax.ShapeDtypeStruct((7, *dataset.input_shape), dataset.train_inputs.dtype)
    where = registry.get("dataset", static["dataset"]).where if "dataset" in static else "dataset"
    seen = _prepared(dataset, raw, where)
    backend = backend or jax.default_backend()
    model = make_model(seen.shape[1:], seen.dtype, output_shape)
    weights = _initial(model)
    size = sum(leaf.size for leaf in jax.tree.leaves(weights))
    if chosen is None:
        chosen = placement.choose(backend, convolutional=model.convolutional, num_parameters=size)
    model = make_model(seen.shape[1:], seen.dtype, output_shape, chosen.conv, static["precision"])
    optimizer, server = bound("optimizer"), bound("server_optimizer")
    for part in (optimizer, server):
        _check_transformation(part, model, tuple((name, tables.get(name, ())) for name in part.traced))
    training = LocalTraining(
        **{name: static[name] for name in TRAINING},
        batch_statistics=static["batch_statistics"],
        optimizer=optimizer,
        lanes=chosen.lanes,
        eval_lanes=chosen.eval_lanes,
        eval_batch=chosen.eval_batch,
    )
    algorithm, aggregator = bound("algorithm"), bound("aggregator")
    read = {*algorithm.traced, *aggregator.traced}
    learning = Learning(
        model,
        task,
        dataset.input_shape,
        longest,
        training,
        preprocess=dataset.preprocess,
        standardize=dataset.scale is not None,
        server=server,
        algorithm=algorithm,
        aggregator=aggregator,
        tables=tuple((name, tables[name]) for name in sorted(read & tables.keys())),
        conv=chosen.conv,
    )
    _check_algorithm(learning)
    return learning


def _kept(make: Callable[..., Made]) -> Callable[..., Made]:
    """Keeps what a part makes, for each combination of the part, its values and its files' content.

    So equal programs compare equal. A notebook may change in place what the kept object holds. Then the part
    makes another one, although the part itself may have its old content again.
    """
    kept: dict[tuple[Any, ...], tuple[Made, str]] = {}

    @functools.wraps(make)
    def made(part: Bound, *others: Any) -> Made:
        found = kept.get((part, *others))
        if found and (not part.digest or (found[1] and digest_of_made(found[0]) == found[1])):
            return found[0]
        new = make(part, *others)
        kept[part, *others] = new, digest_of_made(new) if part.digest else ""
        return new

    return made


@_kept
def _model(
    part: Bound,
    digests: tuple[str | None, ...],
    shape: tuple[int, ...],
    dtype: Any,
    output_shape: tuple[int, ...],
    conv: ConvVariant | None = None,
    precision: Precision = "highest",
) -> Model:
    example = jax.ShapeDtypeStruct((2, *shape), dtype)
    model = adapt(part.part, example, output_shape, {**dict(part.statics), "conv_variant": conv})
    return model._replace(apply=in_precision(model.apply, precision))


@_kept
def _task(part: Bound, digests: tuple[str | None, ...]) -> tasks.Task:
    return tasks.build(part.part, dict(part.statics))


def _prepared(dataset: Dataset, raw: jax.ShapeDtypeStruct, where: str) -> jax.ShapeDtypeStruct:
    """Returns the shape and type of one batch of inputs of the network, after preprocessing."""
    if dataset.preprocess is None:
        return jax.ShapeDtypeStruct(raw.shape, jnp.float32 if dataset.scale else raw.dtype)
    try:
        seen = jax.eval_shape(dataset.preprocess, raw)
    except Exception as error:
        line = next(iter(str(error).splitlines()), type(error).__name__)
        raise PartError(f"{where}: its preprocess does not fit its inputs: {line}") from error
    if getattr(seen, "shape", ())[:1] != raw.shape[:1]:
        raise PartError(f"{where}: its preprocess must return an array [B, ...] for a batch of B samples")
    return seen


@functools.cache
def _check_algorithm(learning: Learning) -> None:
    """Checks by shapes that the federated algorithm fits the model and the aggregator.

    Raises:
      PartError: the algorithm does not fit, or one of its functions returns an invalid result.
      ValueError: the algorithm can't be built with the other values of the spec.
    """
    part, shape = learning.algorithm.part, learning.sent
    if not jax.tree.leaves(shape.params):
        raise PartError(f"{part.where}: upload must return one array or more, but returns none")
    rows = []

    def combine(values: dict[str, jax.Array]) -> None:
        rows.append(learning.build_aggregator(values).combine is not None)

    jax.eval_shape(combine, learning.shapes_of(learning.aggregator))
    if rows[0] and all(jax.tree.leaves(state) for state in learning.states):
        raise PartError(
            f'aggregator = "{learning.aggregator.name}": must be "mean" with {part.where}, because its '
            "server and clients keep states"
        )


@functools.cache
def _initial(model: Model) -> Weights:
    """Returns the shapes and types of a model's initial weights."""
    return jax.eval_shape(model.init, jax.random.key(0))


@functools.cache
def _check_transformation(bound: Bound, model: Model, given: tuple[tuple[str, tuple[int, ...]], ...]) -> None:
    """Checks by shapes that an optimizer fits the model."""
    where, params = bound.part.where, _initial(model).params

    def change_of(values: dict[str, jax.Array], params: Any) -> Any:
        made = bound.build(**values)
        if not isinstance(made, optax.GradientTransformation):
            raise PartError(
                f"{where}: must return an optax.GradientTransformation, not {type(made).__name__}"
            )
        applied = transformation(bound, values)
        return applied.update(params, applied.init(params), params)[0]

    try:
        values = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in given}
        change = jax.eval_shape(change_of, values, params)
    except PartError:
        raise
    except Exception as error:
        line = next(iter(str(error).splitlines()), type(error).__name__)
        raise PartError(f"{where}: can't be applied to the model's parameters: {line}") from error
    if jax.tree.map(jnp.shape, change) != jax.tree.map(jnp.shape, params):
        raise PartError(f"{where}: its updates must have the shapes of the model's parameters")
