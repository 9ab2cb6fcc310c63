"""Parts that are wrong, from the command line: one line that names part and file, and never a traceback."""

import pickle

import pytest

import pausejax
from pausejax import kinds
from pausejax.commands import main as cli

HEAD = """
import jax, jax.numpy as jnp, numpy as np, optax, pausejax
from typing import Any
from pausejax.data import Dataset
from pausejax.federated import tasks
from pausejax.network import Availability, Law
from pausejax.policies import Cohort, Policy, cohort, memoryless
"""
POLICY = """
@pausejax.policy
def mine(*, num_clients: int, clients_per_round: int) -> Policy:
    def select(key, state, view):
        {body}
    return memoryless(select)
"""
PLAYED = "return Cohort(jnp.asarray({members}, jnp.int32), jnp.asarray({weights}, jnp.float32))"

LINES = HEAD.count("\n")


def run(tmp_path, code, *, policy="mine", **settings):
    """The exit code and what stands on standard error for a study that uses a file."""
    (tmp_path / "mine.py").write_text(HEAD + code)
    (tmp_path / "spec.toml").write_text(f'use = ["mine.py"]\n[[policy]]\nname = "{policy}"\n')
    settings = {"mode": "bandit", "rounds": 3, "num_clients": 4, "clients_per_round": 2} | settings
    given = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    return cli.main(
        ["run", str(tmp_path / "spec.toml"), "--out", str(tmp_path / "out"), "--quiet", "--no-report", *given]
    )


def refused(tmp_path, capsys, message, code, expected=cli.BAD_SPEC, category="policy", **settings):
    assert run(tmp_path, code, **settings) == expected
    (line,) = capsys.readouterr().err.strip().splitlines()
    place = f"{tmp_path / 'mine.py'}: {category} mine: "
    assert place in line and message in line, line


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("@pausejax.policy\ndef mine(num_clients): ...", "num_clients: parameters must be keyword-only"),
        ("@pausejax.policy\ndef mine(*args): ...", "*args: parameters must be keyword-only"),
        (
            "@pausejax.policy\ndef mine(*, sizes: list = []): ...",
            "sizes: <class 'list'> = []: the type must be",
        ),
        ("@pausejax.policy\ndef mine(*, x: Any = 1): ...", "x: typing.Any = 1: the type must be float, int"),
        ("@pausejax.policy\ndef mine(*, x: int = 0.5): ...", "x: its default 0.5 must be of type int"),
        (
            "@pausejax.policy\ndef mine(*, x: float = pausejax.Parameter(2.0, high=1)): ...",
            "x: its default 2.0 must be a finite number <= 1",
        ),
        ("@pausejax.policy\ndef mine(*, x: 'Nowhere' = 1): ...", "its signature can't be read"),
        (
            "@pausejax.policy\ndef mine(*, clients_per_round: int = 3): ...",
            "clients_per_round: must equal the parameter of this name of every study: default 3 against",
        ),
        ("@pausejax.policy\ndef mine(*, rounds: int = 7): ...", "rounds: every study has this key"),
        ("@pausejax.policy\ndef mine(*, unheard_of): ...", "unheard_of: must have a default, or be one of"),
        ("@pausejax.policy\ndef mine():\n    raise OSError('no\\nsuch')", "built: OSError: no (line"),
        (
            "@pausejax.policy\ndef mine():\n    raise ValueError('odd')",
            f"can't be built: odd (line {LINES + 3})",
        ),
        ("@pausejax.policy\ndef mine(): return 3", "must return a pausejax.policies.Policy, not int"),
        (
            "@pausejax.policy\ndef mine(): return memoryless(lambda key, state, view: 3)",
            "select must return a Cohort, not int",
        ),
        (POLICY.format(body="return undefined"), "select: NameError: name 'undefined' is not defined (line"),
        (POLICY.format(body="return view.latency if view.round > 1 else 2"), "select: TracerBool"),
        (
            POLICY.format(body=PLAYED.format(members=[0, 1, 2, 3, 0], weights=[0.2] * 5)),
            "select: members must be int32 [n] with n from 1 to 4, not int32 [5]",
        ),
        (
            POLICY.format(body="return Cohort(jnp.zeros(2), jnp.ones(2))"),
            "select: members must be int32 [n]",
        ),
    ],
)
def test_policies_before_compute(tmp_path, capsys, code, message):
    refused(tmp_path, capsys, message, code)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *(
            (name, "every study has this key")
            for name in ("policy", "seed", "zip", "reward", "use", "mean", "x")
        ),
        *(
            (name, "results have a variable or metric of this name")
            for name in ("regret", "test_accuracy", "mean_latency", "rounds_played")
        ),
    ],
)
def test_a_parameter_may_take_no_name_of_spec_or_result(tmp_path, capsys, name, message):
    code = f"@pausejax.policy\ndef mine(*, {name}: float = 0.5): ..."
    refused(tmp_path, capsys, f"{name}: {message}", code)


@pytest.mark.parametrize("name", ["cost", "mse", "model", "rounds_played"])
def test_a_parameter_of_an_ensemble_policy_may_take_no_name_of_a_result(own_parts, name):
    exec(f"@pausejax.parts.ensemble_policy\ndef own(*, {name}: float = 0.5): ...", {"pausejax": pausejax})
    study = {"mode": "ensemble", "rounds": 2}
    with pytest.raises(ValueError, match=f"own: {name}: results have a variable or metric of this name"):
        kinds.parse({**study, "policy": [{"name": "own"}]})
    assert kinds.parse({**study, "policy": [{"name": "efl_fg"}]})


@pytest.mark.parametrize("name", ["mean", "eval_round", "mean_latency", "reward"])
def test_a_part_that_is_not_used_refuses_no_study(own_parts, name):
    exec(f"@pausejax.policy\ndef own(*, {name}: float = 0.5): ...", {"pausejax": pausejax})
    document = {"mode": "bandit", "rounds": 2}
    assert kinds.parse({**document, "policy": [{"name": "random"}]})
    with pytest.raises(ValueError, match=f"own: {name}: "):
        kinds.parse({**document, "policy": [{"name": "own"}]})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("symbol='γ'", "policy mine: y: another parameter has the symbol γ"),
        ("section='policy'", "y: 'policy' is a key of every study, no section"),
    ],
)
def test_symbols_and_sections_that_are_taken(tmp_path, capsys, options, message):
    code = f"@pausejax.policy\ndef mine(*, y: float = pausejax.Parameter(0.5, {options})): ..."
    refused(tmp_path, capsys, message, code)


@pytest.mark.parametrize(
    ("members", "weights", "message"),
    [
        (
            "[0, jnp.where(view.round < 3, 1, 4)]",
            [0.5, 0.5],
            "round 3: client 4 does not exist; must be from 0",
        ),
        (
            "[0, 1]",
            "[0.5, jnp.where(view.round < 2, 0.5, jnp.nan)]",
            "round 2: a weight of the cohort is nan; must be",
        ),
    ],
)
def test_policies_when_they_have_been_played(tmp_path, capsys, members, weights, message):
    code = POLICY.format(body=PLAYED.format(members=members, weights=weights))
    refused(tmp_path, capsys, message, code, cli.FAILED)


@pytest.mark.parametrize(
    ("category", "code", "message"),
    [
        ("latency", "def mine(): return 3", "must return a pausejax.network.Law, not int"),
        ("latency", "def mine(): return Law(lambda key: jnp.ones(3))", "sample returns float32 [3]; must be"),
        ("latency", "def mine(): return Law(lambda key: jnp.ones(4, int))", "returns int32 [4]; must be"),
        ("latency", "def mine(): return Law(lambda key: key + 1)", "sample: TypeError: "),
        (
            "latency",
            "def mine(): return Law(lambda key: jnp.ones(4), lambda f: f(jnp.ones(4)).sum())",
            "expectation returns float32 []; must be float32 [4]",
        ),
        ("availability", "def mine(): return None", "a pausejax.network.Availability, not NoneType"),
        (
            "availability",
            "def mine(): return Availability(lambda k: (), lambda k, s, r: (s, jnp.ones(4)))",
            "step returns float32 [4]; must be bool [4]",
        ),
        (
            "availability",
            "def mine(): return Availability(lambda k: 0, lambda k, s, r: (1.5, jnp.ones(4, bool)))",
            "step must return a state of the same shapes and types",
        ),
        ("quantity", "def mine(seen): return seen.latency", "must return one number, not float32 [4]"),
        ("quantity()", "def mine(seen): return 'much'", "must return one number, not str"),
        ("quantity()", "def mine(seen): return seen.nothing", "fails: AttributeError: 'Snapshot' object"),
        ("quantity()", "def mine(seen, *, x: int = 1): return x", "x: a quantity must have no parameters"),
    ],
)
def test_networks_and_quantities(tmp_path, capsys, category, code, message):
    name = category.removesuffix("()")
    settings = {"quantities": '["mine"]'} if name == "quantity" else {name: "mine"}
    code = f"@pausejax.{category}\n{code}"
    refused(tmp_path, capsys, message, code, category=name, policy="random", **settings)


@pytest.mark.parametrize(
    ("cdf", "message"),
    [
        ("x", "cdf returns float32 [280, 1]; must be float32 [280, 4]"),
        ("above / 0.5", "cdf: -"),
        ("1 - jnp.clip(above, 0, 1)", "must not decrease with the latency"),
        ("100 * jnp.clip(above, 0, 1)", "must be from 0 to 1"),
        ("jnp.where(above > 0, 1.0, jnp.nan)", "cdf: nan for client 0"),
    ],
)
def test_distribution_functions_before_compute(tmp_path, capsys, cdf, message):
    law = f"Law(lambda key: jnp.ones(4), cdf=lambda x: (lambda above: {cdf})(x - jnp.full((1, 4), 0.3)))"
    settings = {"category": "latency", "policy": "random", "latency": "mine", "expected_regret": "true"}
    refused(tmp_path, capsys, message, f"@pausejax.latency\ndef mine(): return {law}", **settings)


@pytest.mark.slow
@pytest.mark.parametrize(
    "law",
    [
        "lambda key: seconds, lambda function: function(jnp.ones(4))",
        "lambda key: jnp.ones(4), lambda function: function(seconds)",
    ],
)
def test_a_latency_that_is_no_number_ends_the_study(tmp_path, capsys, law):
    """The latency of client 3, whom no round selects."""
    code = f"seconds = jnp.array([1.0, 1, 1, jnp.nan])\n@pausejax.latency\ndef mine(): return Law({law})"
    message = "round 1: a latency or its expectation is not finite"
    refused(tmp_path, capsys, message, code, cli.FAILED, category="latency", policy="fastest", latency="mine")


@pytest.mark.parametrize(
    "name",
    [
        "reward",
        "seed",
        "mean_latency",
        "gamma",
        "rounds",
        "test_metric",
        "released",
        "max_releases",
        "unread_parameters",
        "reports",  # counts the losses of an ensemble; -1 is no value
    ],
)
def test_a_quantity_may_take_no_name_of_the_result(tmp_path, capsys, name):
    code = f"@pausejax.quantity()\ndef {name}(seen): return 1.0"
    assert run(tmp_path, code, policy="random", quantities=f'["{name}"]') == cli.BAD_SPEC
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert f"quantity {name}: this name is taken" in line


SAMPLES = "jnp.ones((80, 2)), np.arange(80) % 2, jnp.ones((9, 2)), np.arange(9) % 2"


@pytest.mark.parametrize(
    ("category", "code", "message"),
    [
        ("dataset", "def mine(): return 3", "must return a pausejax.data.Dataset, not int"),
        ("dataset", "def mine(): return np.load('none.npy')", "can't be built: FileNotFoundError: "),
        (
            "dataset",
            f"def mine(): return Dataset({SAMPLES})._replace(test_inputs=np.ones((9, 3)))",
            "test_inputs must have the type and sample shape of train_inputs",
        ),
        (
            "dataset",
            f"def mine(): return Dataset({SAMPLES}, preprocess=lambda x: x @ x)",
            "its preprocess does not fit its inputs",
        ),
        ("partition", "def mine(labels, num_clients, seed): return labels[:3]", "must return a Partition"),
        (
            "partition",
            "def mine(labels, num_clients, seed): return labels // 99",
            "must own one sample or more",
        ),
        ("partition", "def mine(labels, num_clients, seed): return labels", "owners must be from 0 to 3"),
        ("partition", "def mine(labels): return labels", "fails: TypeError: mine() takes 1"),
        ("server_optimizer", "def mine(): return 3", "must return an optax.GradientTransformation, not int"),
        (
            "server_optimizer",
            "def mine(*, nobody): return optax.scale(-1.0)",
            "nobody: must have a default, or be one of",
        ),
        (
            "task",
            "def mine(): return tasks.classification()._replace(metric_name='reward')",
            "metric_name = 'reward': must be an identifier",
        ),
        (
            "task",
            "def mine(): return tasks.classification()._replace(metric_name='test_models')",
            "metric_name = 'test_models': client_models is the name of the clients' models in a result",
        ),
        (
            "task",
            "def mine(): return tasks.classification()._replace(summary=lambda mean: mean[None])",
            "its summary must return one number",
        ),
        ("task", "def mine(): return tasks.nothing()", "can't be built: AttributeError: "),
        ("model", "def mine(*, num_outputs: int = 7): ...", "num_outputs: the simulation gives a value of"),
        ("dataset", "def mine(*, data_dir: str = '.'): ...", "data_dir: the simulation gives a value of"),
        ("model", "def mine(*, dtype: str = 'half'): raise ValueError(dtype)", "can't be built: half"),
        (
            "model",
            "def mine(): return (lambda key: jnp.ones((1, 3)), lambda w, x: x.sum((1, 2, 3))[:, None] * w)",
            "for inputs of shape (2, 8, 8, 1), outputs must have the shape (2, 10), not (2, 3)",
        ),
    ],
)
def test_parts_that_learn(tmp_path, capsys, category, code, message):
    settings = {"mode": "training", category: "mine", "train_samples": 80 if category == "dataset" else 200}
    code = f"@pausejax.{category}\n{code}"
    refused(tmp_path, capsys, message, code, category=category, policy="random", **settings)


def test_parts_that_no_spec_uses_together_need_not_agree(tmp_path):
    for name, width in (("first", 3), ("second", 5)):
        code = f"import pausejax\n@pausejax.policy\ndef {name}(*, width: int = {width}): ..."
        (tmp_path / f"{name}.py").write_text(code)
    files = [str(tmp_path / "first.py"), str(tmp_path / "second.py")]

    def parsed(*policies, **more):
        document = {"mode": "bandit", "use": files, "policy": [{"name": name} for name in policies]}
        return kinds.parse(document, **more)

    for name, width in (("first", 3), ("second", 5)):
        study = parsed(name)
        assert study.words.parameters["width"].default == width
        assert pickle.loads(pickle.dumps(study)).words.parameters["width"].default == width
    assert parsed("random").words.parameters["width"].default == 3
    both = parsed("first", "second").words.parameters
    assert (both["first_width"].default, both["second_width"].default) == (3, 5) and "width" not in both


def test_no_default_comes_from_one_of_several_parts_that_a_study_does_not_use(tmp_path):
    code = "import pausejax\n@pausejax.policy\ndef taker(*, width: float): ..."
    for name, width in (("first", 3.0), ("second", 5.0)):
        code += f"\n@pausejax.policy\ndef {name}(*, width: float = {width}, clients_per_round: int = 3): ..."
    (tmp_path / "mine.py").write_text(code)

    def parsed(*policies):
        return kinds.parse({"mode": "bandit", "use": [str(tmp_path / "mine.py")], "policy": list(policies)})

    taker = {"name": "taker"}
    with pytest.raises(
        ValueError, match=r"mine\.py: policy taker: width: has no default, and parts that this"
    ):
        parsed(taker)
    assert parsed({**taker, "width": 4.0}).policies[0].axes == {"width": (4.0,)}
    assert parsed({"name": "random"}).words.parameters["width"].default == 3.0


@pytest.mark.parametrize("argument", ["y: float = pausejax.Parameter(0.5, symbol='γ')", "gamma: float = 0.5"])
def test_a_symbol_that_is_taken_concerns_only_studies_that_use_the_part(tmp_path, argument):
    (tmp_path / "mine.py").write_text(f"import pausejax\n@pausejax.policy\ndef mine(*, {argument}): ...")
    document = {"mode": "bandit", "use": [str(tmp_path / "mine.py")], "policy": [{"name": "pause", "γ": 2}]}
    assert kinds.parse(document).policies[0].axes == {"privacy_weight": (2.0,)}
    with pytest.raises(ValueError, match=r"policy mine: \w+: another parameter has the symbol"):
        kinds.parse({**document, "policy": [{"name": "mine"}]})


def test_what_a_part_may_be_given_is_listed(tmp_path, capsys):
    code = "@pausejax.policy\ndef mine(*, num_client): ..."
    message = "num_client: must have a default, or be one of"
    refused(tmp_path, capsys, message, code)


def test_a_word_that_no_reader_of_the_result_would_take_is_refused_before_compute(tmp_path):
    code = "import pausejax\n@pausejax.quantity(label='a\\x1b[31m')\ndef mine(seen): ..."
    (tmp_path / "mine.py").write_text(code)
    document = {"mode": "bandit", "use": [str(tmp_path / "mine.py")], "policy": [{"name": "random"}]}
    kinds.parse(document)
    with pytest.raises(ValueError, match="spec: metrics: 'mine': label: must not contain control characters"):
        kinds.parse({**document, "quantities": ["mine"]})
    with pytest.raises(ValueError, match="spec: name or label: must have at most 10000 characters"):
        kinds.parse({**document, "name": "x" * 10_001})


def test_a_long_name_is_neither_taken_nor_means_two_parameters(tmp_path):
    code = "import pausejax\n@pausejax.policy\ndef first(*, b_c: int = 1): ...\n"
    code += (
        "@pausejax.policy\ndef first_b(*, c: int = 1): ...\n@pausejax.quantity()\ndef first_b_c(seen): ...\n"
    )
    (tmp_path / "mine.py").write_text(code)
    document = {"mode": "bandit", "use": [str(tmp_path / "mine.py")], "quantities": ["first_b_c"]}
    both = [{"name": "first", "first.b_c": 2}, {"name": "first_b", "first_b.c": 3}]
    study = kinds.parse({**document, "policy": both})
    assert [policy.axes for policy in study.policies] == [{"b_c": (2,)}, {"c": (3,)}]
    with pytest.raises(ValueError, match="first_b_c: unknown key"):
        kinds.parse({**document, "policy": [{"name": "first", "first_b_c": 2}, {"name": "first_b"}]})
