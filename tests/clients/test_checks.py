"""What must fit together in a study of client selection, at the last values that do, and beyond."""

import jax.numpy as jnp
import numpy as np
import pytest

import pausejax
from pausejax import kinds, parts
from pausejax.clients import quantities
from pausejax.clients.expected_regret import MOST_SETS
from pausejax.clients.outputs import outputs, tasks_of
from pausejax.commands import main as cli
from pausejax.network import Law
from pausejax.policies import cohort, memoryless
from pausejax.study.spec import SpecError

BANDIT = {"mode": "bandit", "rounds": 2, "policy": [{"name": "random"}]}


def refused(**document):
    """The lines in which a study is refused."""
    try:
        kinds.parse({**BANDIT, **document})
    except SpecError as error:
        return [problem.removeprefix("spec: ") for problem in error.problems]
    return []


def network(**values):
    return refused(network=values)


def test_a_round_has_no_more_clients_than_the_network():
    assert network(num_clients=6, clients_per_round=6) == []
    (line,) = network(num_clients=6, clients_per_round=7)
    assert line == "network.clients_per_round = 7: must be <= network.num_clients = 6"
    assert len(network(num_clients=[6, 9], clients_per_round=[7, 8, 10])) == 1


def test_counts_are_those_that_float32_tells_apart():
    assert network(num_clients=2**24) == [] and refused(rounds=2**24) == []
    (line,) = network(num_clients=2**24 + 1)
    assert line == f"network.num_clients = {2**24 + 1}: must be an integer >= 1 and <= {2**24}"
    (line,) = refused(rounds=2**24 + 1)
    assert line == f"rounds = {2**24 + 1}: must be an integer >= 1 and <= {2**24}"


def test_a_study_has_two_to_the_28_clients_of_runs_at_most():
    def clients(count, **more):
        return refused(seeds=256, network={"num_clients": count}, **more)

    assert clients(2**20) == [] and clients([8, 2**19]) == []
    (line,) = clients(2**20 + 1)
    assert line == f"network.num_clients = {2**20 + 1}: num_clients times the 256 runs must be <= {2**28}"
    (line,) = clients([8, 2**20])
    assert line.startswith(f"network.num_clients = {2**20}: num_clients times the 512 runs")


@pytest.mark.parametrize(
    ("values", "lines"),
    [
        ({"fast_latency": 0.7}, []),
        ({"min_latency": 0.2}, []),
        ({"fast_latency": 0.71}, ["network.slow_latency = 0.7: must be >= fast_latency = 0.71"]),
        ({"min_latency": 0.21}, ["network.min_latency = 0.21: must be <= fast_latency = 0.2"]),
        (
            {"latency": "lognormal", "min_latency": 0.21},
            ["network.min_latency = 0.21: must be <= fast_latency"],
        ),
        (
            {"latency": ["shifted_exponential", "two_speed"], "slow_latency": [0.1, 0.2]},
            ["network.slow_latency"],
        ),
    ],
)
def test_the_fast_half_is_not_the_slower_one(values, lines):
    assert [line[: len(wanted)] for line, wanted in zip(network(**values), lines, strict=True)] == lines


def test_a_law_without_two_groups_knows_no_fast_half(tmp_path):
    np.savetxt(tmp_path / "trace.csv", np.ones((3, 30)), delimiter=",")
    assert network(latency="trace", trace_file=str(tmp_path / "trace.csv"), min_latency=0.9) == []


def test_expected_regret_knows_networks_whose_cohorts_can_be_listed():
    def listed(clients, cohort, **more):
        return refused(
            expected_regret=True, network={"num_clients": clients, "clients_per_round": cohort, **more}
        )

    assert MOST_SETS == 200_000 and listed(MOST_SETS, 1) == [] and listed(30, 5) == []
    (line,) = listed(MOST_SETS + 1, 1)
    assert "1 of 200001 clients make 2e+05 cohorts" in line
    (line,) = listed([40, 50], 20)
    assert "20 of 40 clients make 1.38e+11 cohorts" in line
    (line,) = listed(6, 2, failure_probability=[0.0, 0.1])
    assert line == "expected_regret = true: needs failure_probability = 0.0"
    (line,) = listed(6, 2, availability=["always", "bernoulli"], availability_probability=0.5)
    assert line == "expected_regret = true: needs availability = 'always'"


@pytest.mark.parametrize(
    ("document", "line"),
    [
        (
            {"policy": [{"name": "oort"}]},
            'policy.name = "oort": selects by losses or updates of clients. Set mode',
        ),
        ({"data": {"partition": "shards"}}, 'data.partition = "unequal": must be "iid" with mode = "bandit"'),
        ({"privacy": {"private": False}}, 'privacy.private = false: must be true with mode = "bandit"'),
        (
            {"policy": [{"name": "random"}, {"name": "random", "label": "open", "private": False}]},
            "privacy.private",
        ),
    ],
)
def test_without_training_there_is_nothing_to_learn_to_share_out_or_to_protect(document, line):
    assert any(problem.startswith(line) for problem in refused(**document)), refused(**document)
    assert not any(problem.startswith(line) for problem in refused(**document, mode="training"))


def test_a_file_is_given_to_a_part_that_reads_it_and_to_no_other(tmp_path):
    file = tmp_path / "t.csv"
    np.savetxt(file, np.ones((3, 30)), delimiter=",")
    given = {"trace_file": str(file)}
    reads = 'read only with network.latency = "trace". Leave it out'
    assert network(latency="trace") == ['network.trace_file = "": needed with network.latency = "trace"']
    assert network(**given) == [f'network.trace_file = "{file}": {reads}']
    assert network(latency=["two_speed", "lognormal"], **given) == [f'network.trace_file = "{file}": {reads}']
    assert network(latency=["trace", "two_speed"], **given) == network(latency="trace", **given) == []


NAMES = {"elapsed", "reward", "regret", "selected", "counts", "round_latency"}
LEARNED = {"test_accuracy", "test_loss", "train_loss", "max_leakage_update", "diverged_round"}
SOMETIMES = {"selection_gap", "expected_regret", "available_count", "failed_count"}


def parsed(**document):
    return kinds.parse({"rounds": 2, "policy": [{"name": "random"}], **document})


@pytest.mark.parametrize(
    ("document", "left"),
    [
        ({}, set()),
        ({"selection_gap": True}, {"selection_gap"}),
        ({"expected_regret": True}, {"expected_regret"}),
        ({"network": {"failure_probability": [0.0, 0.5]}}, {"failed_count"}),
        ({"network": {"availability": "bernoulli"}}, {"available_count"}),
        ({"network": {"availability": ["always", "bernoulli"]}}, {"available_count"}),
    ],
)
def test_what_is_recorded_is_what_was_asked_for(document, left):
    learned, bandit = parsed(**document), parsed(**document, mode="bandit")
    everything = NAMES | LEARNED | SOMETIMES
    assert everything - outputs(learned).variables.keys() == SOMETIMES - left
    assert everything - outputs(bandit).variables.keys() == (SOMETIMES | LEARNED) - left
    for study in (learned, bandit):
        of_gap = {"mean_selection_gap", "exact_share"}
        assert of_gap & outputs(study).metrics.keys() == (of_gap if "selection_gap" in left else set())
        assert ("cumulative_expected_regret" in outputs(study).metrics) == ("expected_regret" in left)
    assert "test_accuracy" in outputs(learned).metrics and "test_accuracy" not in outputs(bandit).metrics


def test_leakage_is_said_to_be_of_what_is_clipped_if_that_is_one_thing():
    def label(**document):
        return outputs(parsed(**document)).metrics["max_leakage"].label

    assert label() == label(privacy={"clip": "coordinate"}) == "maximum leakage ε (per coordinate)"
    assert label(privacy={"clip": "vector"}) == "maximum leakage ε (per update)"
    assert label(privacy={"clip": ["coordinate", "vector"]}) == "maximum leakage ε"
    assert label(mode="bandit") == "maximum leakage ε (per update)"


TASK = """
import jax.numpy as jnp
import pausejax
from pausejax.federated.tasks import Task

@pausejax.task
def distance() -> Task:
    \"\"\"How far off.\"\"\"
    return Task(
        output_shape=lambda dataset: (1,),
        loss=lambda outputs, targets: jnp.abs(outputs[:, 0] - targets),
        metric=lambda outputs, targets: jnp.abs(outputs[:, 0] - targets),
        metric_name="{name}",
        unit="m",
        meaning="mean distance",
        higher_is_better=False,
        loss_unit="m",
    )

@pausejax.quantity(units="kg", reduce="total", maximize=False, label="harm (kg)")
def harm(seen):
    return 1.0
"""


def with_task(tmp_path, name="test_distance", **document):
    file = tmp_path / "own.py"
    file.write_text(TASK.format(name=name))
    return parsed(use=[str(file)], training={"task": "distance"}, quantities=["harm"], **document)


@pytest.mark.slow
def test_a_task_and_a_quantity_of_ones_own_name_and_describe_what_they_measure(tmp_path):
    study = with_task(tmp_path)
    (task,) = tasks_of(study)
    assert task.metric_name == "test_distance" and tasks_of(parsed(mode="bandit")) == []
    found, figures = outputs(study).variables, outputs(study).metrics
    assert (found["test_distance"].units, found["test_distance"].meaning) == ("m", "mean distance")
    assert found["test_loss"].units == found["train_loss"].units == "m"
    assert outputs(parsed()).variables["test_loss"].units == "nat"
    assert "test_accuracy" not in found and "test_accuracy" not in figures
    own = figures["test_distance"]
    assert (own.units, own.maximize) == ("m", False)
    assert (own.label, own.heading, own.meaning) == (
        "test distance (m)",
        "final\ndistance",
        "final mean distance",
    )
    assert figures["test_loss"].units == "m" and figures["harm"].units == found["harm"].units == "kg"
    assert outputs(study).objectives == ("test_distance", "mean_latency", "max_leakage")
    assert outputs(study).best_by == "test_distance"
    accuracy = outputs(parsed()).metrics["test_accuracy"]
    assert (accuracy.label, accuracy.meaning) == (
        "test accuracy (%)",
        "final share of the test set that is classified correctly",
    )


@pytest.mark.parametrize("name", ["not a name", "elapsed", "rounds", "num_clients", "K", "policy"])
def test_a_tasks_metric_cannot_have_the_name_of_something_else(tmp_path, name):
    with pytest.raises(SpecError, match="must be an identifier"):
        with_task(tmp_path, name)
    assert quantities.parts_of(parsed()) == []


@pytest.mark.slow
def test_the_size_of_a_model_is_unknown_where_nothing_is_trained(own_parts):
    """A latency law that asks for it is refused, and is not told 0; as a parameter a spec can give it."""

    def uploads(num_clients, num_parameters):
        return Law(lambda key: jnp.full(num_clients, jnp.float32(1e-4 * num_parameters)))

    @parts.latency
    def uploading(*, num_clients: int, num_parameters: int):
        return uploads(num_clients, num_parameters)

    small = {"num_clients": 3, "clients_per_round": 1, "rounds": 1}
    learned = {**small, "model": "linear", "max_steps": 1, "train_samples": 60}
    size = 64 * 10 + 10
    known = pausejax.simulate("random", latency="uploading", **learned)
    assert known["round_latency"].values.ravel() == pytest.approx([1e-4 * size])
    with pytest.raises(
        pausejax.SpecError, match="uploading: takes num_parameters, which is known only with mode"
    ):
        pausejax.simulate("random", mode="bandit", latency="uploading", **small)

    @parts.latency
    def sized(*, num_clients: int, num_parameters: int = 1000):
        return uploads(num_clients, num_parameters)

    for options, seconds in (({}, 0.1), ({"num_parameters": 5000}, 0.5)):
        found = pausejax.simulate("random", mode="bandit", latency="sized", **options, **small)
        assert found["round_latency"].values.ravel() == pytest.approx([seconds])
    message = rf"^network\.num_parameters = 1000: must be {size}, the number of values in an update"
    with pytest.raises(pausejax.SpecError, match=message):
        pausejax.simulate("random", latency="sized", **learned)
    known = pausejax.simulate("random", latency="sized", num_parameters=size, **learned)
    assert known["round_latency"].values.ravel() == pytest.approx([1e-4 * size])


def test_a_policy_that_reads_a_file_and_learns_from_clients_needs_training(own_parts, tmp_path):
    """Whether it learns is known once its file is read."""
    no_file = pausejax.File("")

    @parts.policy
    def tabled(*, table_file: pausejax.File = no_file):
        first = table_file[0, 0].astype(int)
        select = lambda key, state, view: cohort(jnp.stack([first]), state.data_share)  # noqa: E731
        return memoryless(select)._replace(needs_learning=True)

    np.save(tmp_path / "t.npy", np.zeros((1, 3), np.float32))
    policy = {"name": "tabled", "table_file": str(tmp_path / "t.npy")}
    with pytest.raises(
        pausejax.SpecError, match=r"policy tabled: selects by losses or updates of clients. Set mode"
    ):
        pausejax.simulate(policy, mode="bandit", num_clients=3, clients_per_round=1)


def test_a_law_without_a_distribution_is_a_mistake_of_the_spec(tmp_path, capsys):
    np.savetxt(tmp_path / "t.csv", np.ones((3, 4)), delimiter=",")
    spec = tmp_path / "s.toml"
    spec.write_text(
        'mode = "bandit"\nexpected_regret = true\n[network]\nnum_clients = 4\nclients_per_round = 2\n'
        'latency = "trace"\ntrace_file = "t.csv"\n[[policy]]\nname = "random"\n'
    )
    arguments = ["run", str(spec), "--out", str(tmp_path / "out"), "--quiet", "--no-report"]
    assert cli.main(arguments) == cli.BAD_SPEC
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "latency trace: expected_regret needs a latency law that has a cdf" in line


ARRAYS = """
import jax.numpy as jnp
import pausejax
from pausejax.network import Close, Ending
from pausejax.privacy import Leakage, Mechanism

@pausejax.ending
def patient(*, patience: float = 0.5, deadlines: pausejax.File = pausejax.File("")) -> Ending:
    limit = patience.astype(jnp.float32) * deadlines.reshape(-1)[0]
    return Ending(lambda work: Close(limit, work.latency <= limit))

@pausejax.mechanism
def sampled(*, sigma: float = 1.0) -> Mechanism:
    scale = sigma.astype(jnp.float32)
    return Mechanism(lambda key, update, _: update * scale, lambda r, _: Leakage(r, r), protects="per sample")
"""


def test_parts_that_read_arrays_are_built_as_in_a_program(tmp_path):
    """Otherwise late clients were not recorded, and ε of two mechanisms had the unit of one."""
    (tmp_path / "arrays.py").write_text(ARRAYS)
    np.save(tmp_path / "deadlines.npy", np.ones((1, 30), np.float32))
    use = [str(tmp_path / "arrays.py")]
    network = {"ending": ["all", "patient"], "deadlines": str(tmp_path / "deadlines.npy")}
    assert "late_count" in outputs(parsed(use=use, network=network)).variables
    label = (
        outputs(parsed(use=use, privacy={"mechanism": ["gaussian", "sampled"]})).metrics["max_leakage"].label
    )
    assert label == "maximum leakage ε"


def test_losses_of_several_tasks_have_all_units(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(TASK.format(name="test_distance"))
    found = outputs(parsed(use=[str(file)], training={"task": ["distance", "regression", "classification"]}))
    assert found.variables["test_loss"].units == found.metrics["train_loss"].units == "1 or m or nat"
