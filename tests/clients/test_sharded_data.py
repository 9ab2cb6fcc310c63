"""Training inputs in shares over the devices: the samples, to the last bit, and so the runs, of copies."""

import functools

import jax
import numpy as np
import pytest

import pausejax
from pausejax.data.host import DataCache
from pausejax.devices import SPLIT, put, put_shards, runs_mesh
from pausejax.execution import play as path
from pausejax.execution import rounds
from pausejax.execution.local import LocalExecutor
from pausejax.federated import batches
from pausejax.kinds import parse
from pausejax.results import checkpoint
from pausejax.results.folder import Folder
from pausejax.results.stores import FolderStore
from pausejax.study.plan import make_plan
from pausejax.study.spec import SpecError

# Clients of unlike sizes take unlike numbers of steps; two devices can't share 301 samples equally.
SMALL = {
    "seeds": 3,
    "rounds": 4,
    "eval_every": 2,
    "num_clients": 6,
    "clients_per_round": 2,
    "model": "linear",
    "train_samples": 301,
    "partition": "dirichlet_quantity",
    "batch_size": 5,
}
PARTS = '''
import flax.linen as nn
import jax
import jax.numpy as jnp
import pausejax
from pausejax.policies import cohort, memoryless

@pausejax.model
def normed(*, num_outputs: int):
    """Batch norm before a linear layer."""
    class Normed(nn.Module):
        @nn.compact
        def __call__(self, x, training):
            x = nn.BatchNorm(use_running_average=not training)(x.reshape(len(x), -1))
            return nn.Dense(num_outputs)(x)
    return Normed()

def picky(look):
    def select(key, clients, view):
        first = look(lambda k: view.local_loss(k[None])[0])
        return cohort((first + jnp.arange(2)) % 6, clients.data_share)
    return memoryless(select)

@pausejax.policy
def looks_in_a_loop():
    """Goes on to the next client as long as that one has lost more."""
    def look(loss):
        worse = lambda k: (k < 5) & (loss(k + 1) > loss(k))
        return jax.lax.while_loop(worse, lambda k: k + 1, jnp.int32(0))
    return picky(look)

@pausejax.policy
def looks_six_times():
    """Has the sum of all losses decide."""
    def look(loss):
        add = lambda k, total: total + loss(k)
        return jax.lax.fori_loop(0, 6, add, jnp.float32(0)).astype(jnp.int32)
    return picky(look)
'''


@pytest.fixture
def own(tmp_path):
    (tmp_path / "own.py").write_text(PARTS)
    return [str(tmp_path / "own.py")]


def both(policies, **changes):
    """A study with copies, and with shares."""
    return [
        pausejax.simulate(policies, data_placement=how, **SMALL | changes)
        for how in ("replicated", "sharded")
    ]


def assert_same(ours, theirs):
    assert ours.data_vars.keys() == theirs.data_vars.keys()
    for name, variable in ours.data_vars.items():
        if variable.dtype.kind == "f":  # XLA rounds another program's sums in another way
            tolerance = {"rtol": 2e-6, "atol": 1e-6}
            np.testing.assert_allclose(theirs[name].values, variable.values, **tolerance, err_msg=name)
        else:
            np.testing.assert_array_equal(theirs[name].values, variable.values, err_msg=name)


def program_of(policy="random", *, limit=None, wanted=None, **changes):
    document = {**SMALL, "policy": [{"name": policy}], **changes}
    plan = make_plan(parse(document, source="test", flat=True))
    executor = LocalExecutor(DataCache(), device_memory=limit, data_placement=wanted)
    return executor.program(plan.study, plan.groups[0])


def simulation_of(**options):
    return program_of(**options).simulation


@pytest.mark.parametrize("model", ["linear", "mlp"])
# One asks clients for losses on all their data, one learns from those of training.
@pytest.mark.parametrize("policy", ["power_of_choice", "oort"])
@pytest.mark.slow
def test_shares_give_the_numbers_of_copies(model, policy):
    assert_same(*both(policy, model=model))


@pytest.mark.slow
def test_one_run_on_two_devices_whose_clients_keep_statistics(own):
    assert_same(*both("random", seeds=1, use=own, model="normed", batch_statistics="local"))


@pytest.mark.slow
def test_chunks_that_shrink_keep_every_share():
    """Four runs, then two, then one, which is alone on its device only where every device has all data."""
    ours, theirs = both(
        "fastest",
        seeds=1,
        rounds=150,
        eval_every=10,
        model="linear",
        max_steps=2,
        persist_optimizer=True,
        fast_latency=[0.06, 0.2, 1.0, 1.4],
        slow_latency=1.5,
        stop_at_latency=12.0,
    )
    played = np.sort((~np.isnan(ours.reward)).sum("round").values)
    # In segments of 25 rounds, each looked at when the next one has been played.
    assert played[1] <= 50 and 75 < played[2] <= 100 and played[3] > 125, "no chunk shrinks twice"
    assert_same(ours, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("first", ["replicated", pytest.param("sharded", marks=pytest.mark.slow)])
def test_a_lone_run_goes_on_when_its_data_lie_otherwise(first, tmp_path, monkeypatch):
    document = {**SMALL, "rounds": 60, "eval_every": 60, "seeds": 1, "policy": [{"name": "random"}]}
    plan = make_plan(parse(document, source="test", flat=True))

    def play(folder, how, most=np.inf):
        played = []

        def progress(rounds):
            played.append(rounds)
            if sum(played) >= most:
                raise KeyboardInterrupt

        store = FolderStore(Folder(folder), checkpoint_seconds=0.0)
        path.play(plan, LocalExecutor(DataCache(), data_placement=how), store, progress=progress)

    play(tmp_path / "whole", "replicated")
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path / "cut", first, most=30)
    kept = checkpoint.Checkpoint.restore
    restored = []
    monkeypatch.setattr(
        checkpoint.Checkpoint, "restore", lambda *args: restored.append(kept(*args)) or restored[-1]
    )
    play(tmp_path / "cut", {"replicated": "sharded", "sharded": "replicated"}[first])
    assert restored[0] is not None and restored[0][1][-1].last_round >= 25
    assert_same(pausejax.open(tmp_path / "whole").load(), pausejax.open(tmp_path / "cut").load())


@pytest.mark.slow
def test_data_that_were_sharded_stay_so_when_a_study_goes_on_with_more_memory(tmp_path, monkeypatch):
    plan = make_plan(parse({**SMALL, "policy": [{"name": "random"}]}, source="test", flat=True))
    resident = simulation_of(wanted="replicated").device_bytes()
    limit = sum(resident.shared.values()) + sum(resident.per_run.values()) - 1
    shares = []

    def play(memory, how=None):
        executor = LocalExecutor(DataCache(), device_memory=memory, data_placement=how)
        path.play(plan, executor, FolderStore(Folder(tmp_path)), progress=lambda _: None)

    def played(program, *_):
        shares.append(program.simulation.input_shards)
        raise KeyboardInterrupt

    monkeypatch.setattr(rounds, "play_rounds", played)
    for memory, how in ((limit, None), (None, None), (None, "replicated"), (None, None)):
        with pytest.raises(KeyboardInterrupt):
            play(memory, how)
    assert shares == [2, 2, 1, 2]


def test_every_bit_of_a_sample_arrives():
    mesh, random = runs_mesh(2), np.random.default_rng(0)
    floats = np.array([-0.0, 0.0, np.nan, np.inf, 1e-45, 1.0, -1.0], np.float32)
    for rows in (floats[:, None], random.integers(0, 256, (7, 3)).astype(np.uint8), floats[:, None] > 0):
        index = random.integers(0, 7, (4, 5)).astype(np.int32)  # two lanes on each device

        @jax.jit
        @functools.partial(jax.shard_map, mesh=mesh, in_specs=(SPLIT, SPLIT), out_specs=SPLIT)
        def fetched(share, index):
            return jax.vmap(batches.rows_of_owners, (None, 0))(share, index)

        found = np.asarray(fetched(put_shards(rows, mesh), put(index, mesh, SPLIT)))
        assert found.dtype == rows.dtype and found.tobytes() == rows[index].tobytes()


@pytest.mark.slow
def test_only_sharded_programs_communicate():
    assert jax.local_device_count() == 2
    copies, shares = (simulation_of(wanted=how) for how in ("replicated", "sharded"))
    programs = [simulation.lower(4).as_text() for simulation in (copies, shares)]
    found = [[name in text for name in ("all_to_all", "all_gather", "all_reduce")] for text in programs]
    assert found == [[False] * 3, [True] * 3]
    # What a device computes with is its share, or the whole.
    assert ["tensor<151x64xui8>" in text for text in programs] == [False, True]
    assert (copies.input_shards, shares.input_shards) == (1, 2)
    # A lone run leaves no device out that holds a share.
    assert (copies.padded(1), shares.padded(1)) == (1, 2)
    assert {copies.padded(3), shares.padded(3)} == {4}


def test_each_device_holds_its_share_alone():
    program = program_of(wanted="sharded")
    simulation, runs = program.simulation, program.group.runs[:2]
    (world, _), images = simulation.arguments(runs), np.asarray(simulation.first_world.data.inputs)
    assert [shard.data.shape for shard in world.data.inputs.addressable_shards] == [(151, 64)] * 2
    np.testing.assert_array_equal(np.asarray(world.data.inputs)[:301], images)
    (name,) = [name for name in simulation.device_bytes().shared if name.startswith("training data")]
    assert name == "training data (1/2 of the inputs)"
    assert (
        simulation.device_bytes().shared[name]
        == 151 * images[0].nbytes + simulation.first_world.data.targets.nbytes
    )


def test_data_are_sharded_where_that_alone_fits_and_refused_where_nothing_does():
    copies, shares = (simulation_of(wanted=how).device_bytes() for how in ("replicated", "sharded"))
    needed, fewer = (sum(each.shared.values()) + sum(each.per_run.values()) for each in (copies, shares))
    assert fewer < needed
    limits = (needed, needed - 1, fewer, fewer - 1)
    assert [simulation_of(limit=limit).input_shards for limit in limits[:3]] == [1, 2, 2]
    for limit, wanted in ((fewer - 1, None), (needed - 1, "replicated")):
        with pytest.raises(
            SpecError, match=r"With data_placement = sharded it would hold .*\(1/2 of the inp"
        ):
            program_of(limit=limit, wanted=wanted)
    with pytest.raises(SpecError, match=r"every device holds .*\(1/2 of the inputs\)[^;]* GB$"):
        program_of(limit=fewer - 1, wanted="sharded")


def test_what_is_no_placement_is_refused():
    with pytest.raises(SpecError, match=r"^data_placement = 'halved': must be one of replicated, sharded$"):
        pausejax.simulate(data_placement="halved", **SMALL)


def test_without_training_there_is_nothing_to_shard():
    simulation = simulation_of(mode="bandit", partition="iid", wanted="sharded")
    assert simulation.input_shards == 1 and simulation.padded(1) == 1


@pytest.mark.slow
def test_policies_ask_for_losses_together_or_are_refused(own):
    def lower(policy, wanted):
        return program_of(policy, wanted=wanted, use=own).lower(2)

    lower("looks_six_times", "sharded")
    lower("looks_in_a_loop", "replicated")
    with pytest.raises(SpecError, match=r"own\.py: policy looks_in_a_loop: computes local losses in a loop"):
        lower("looks_in_a_loop", "sharded")
