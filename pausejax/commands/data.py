"""`pausejax data`: fetches a data set, draws samples, and draws how a study would partition it."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pausejax.atomic import replacing
from pausejax.commands import options as common

if TYPE_CHECKING:
    from pausejax.study.study import Study


def add_to(commands: Any) -> None:
    """Adds the command to the command line."""
    parser = commands.add_parser(
        "data",
        parents=[common.settings(), common.quiet()],
        help="prepare a data set, and draw its samples and its partition",
    )
    parser.add_argument(
        "name", metavar="NAME", help="data set: digits, mnist, fashion_mnist, cifar10, or one of your own"
    )
    parser.add_argument(
        "--out", metavar="DIR", default=".", help="folder for the pictures (default: the current folder)"
    )
    parser.add_argument(
        "--partition", metavar="NAME", default="iid", help="partition of the samples (default: iid)"
    )
    parser.add_argument(
        "--num-clients", metavar="K", type=int, default=30, help="number of clients (default: 30)"
    )
    parser.add_argument("--seed", metavar="S", type=int, default=0, help="seed of the partition (default: 0)")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> None:
    """Prepares a data set, draws samples and the partition, and prints the sizes of data set and partition.

    Raises:
      SpecError: an option is out of its range; the message names the option and the allowed values.
      FileNotFoundError: the data set is not in the folder of data sets, and can't be fetched.
    """
    from pausejax.clients.build import dataset_of, part_of, partition_of_seed
    from pausejax.data import pictures
    from pausejax.data.host import DataCache
    from pausejax.study.document import SpecError

    study, values = _checked(options)
    name, cache = values["dataset"], DataCache(options.data_dir)
    dataset = dataset_of(study, values, cache)
    shares = partition_of_seed(study, values, study.seeds[0], cache)
    if not dataset.is_images:
        raise SpecError([f"pausejax data: {name}: must hold labelled images, which alone can be drawn"])
    labels = dataset.train_targets
    own = {option: values[option] for option in part_of(study, "partition", values).parameters}
    settings = [f"{name} {one:g}" if isinstance(one, float) else f"{name} {one}" for name, one in own.items()]
    how = ", ".join(
        [values["partition"], *settings, f"{values['num_clients']} clients, seed {study.seeds[0]}"]
    )
    directory = Path(options.out)
    directory.mkdir(parents=True, exist_ok=True)
    figures = {
        f"{name}_samples": pictures.sample_sheet(dataset),
        f"{name}_{values['partition']}": pictures.partition_picture(shares, labels, f"{name}: {how}"),
    }
    for picture, figure in figures.items():
        for suffix in ("png", "pdf"):
            with replacing(directory / f"{picture}.{suffix}") as partial:
                undated = {"CreationDate": None} if suffix == "pdf" else None
                figure.savefig(partial, format=suffix, dpi=300, metadata=undated)
    if options.quiet:
        return
    height, width, channels = dataset.input_shape
    whole = dataset_of(study, {**values, "train_samples": 0}, cache)
    train, test = len(whole.train_targets), len(whole.test_targets)
    counts = shares.label_counts(labels)
    dominant = counts.max(axis=1) / counts.sum(axis=1)
    training = f"{shares.sizes.min():,} to {shares.sizes.max():,} training images"
    console = common.console()
    for line in (
        f"{name}: {train:,} training and {test:,} test images, {height}×{width}×{channels}, "
        f"{dataset.classes} classes",
        f"{how}: {len(labels):,} images, {training} a client; "
        f"a client's most frequent label has on average {dominant.mean():.0%} of the client's images",
        f"pictures in {directory} (PNG and PDF): {', '.join(figures)}",
    ):
        console.print(line, markup=False)


def _checked(options: argparse.Namespace) -> "tuple[Study, dict[str, Any]]":
    """Returns a checked study for the options, and its value of each parameter."""
    from pausejax import kinds
    from pausejax.parts import registered_parts
    from pausejax.study.axes import Range
    from pausejax.study.document import SpecError

    document = {
        "seeds": [options.seed],
        "network": {"num_clients": options.num_clients, "clients_per_round": 1},
        "data": {"dataset": options.name, "partition": options.partition},
        "policy": [{"name": min(registered_parts().of("policy"))}],  # any policy, as no client is selected
    }
    study = kinds.parse(
        document, source="pausejax data", overrides=options.set, use=options.use, folder=Path()
    )
    axes = {**study.axes, "seeds": study.seeds}
    swept = [name for name, axis in axes.items() if isinstance(axis, Range) or len(axis) > 1]
    if swept:
        raise SpecError([f"pausejax data: {name}: must have one value, not several" for name in swept])
    return study, {name: axis[0] for name, axis in study.axes.items() if not isinstance(axis, Range)}
