"""Two specs in one folder: what is planned there is refused, kept or told, also before any run has ended."""

import pytest

import pausejax
from pausejax.commands import main as cli
from pausejax.kinds import KINDS
from pausejax.results import labels, planned, study_folder
from pausejax.results.folder import Folder
from pausejax.results.stores import FolderStore
from pausejax.study.spec import SpecError

from .studies import arrays_of, check, finish, make

SMALL, LARGE, OTHER = make(seeds=2), make(seeds=4), make(seeds=[1, 2])


def put(folder, plan, places):
    """Writes some runs of a plan as one part, and returns the part's name."""
    return study_folder.write_part(folder, [plan.identities[at] for at in places], arrays_of(plan, places))


def files(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def spec_of(folder):
    return folder.read(study_folder.SPEC).decode()


def test_another_spec_is_refused_before_any_part_is_written(tmp_path):
    folder = Folder(tmp_path)
    study_folder.prepare(folder, SMALL)
    with study_folder.playing(folder):
        before = files(tmp_path)
        with pytest.raises(SpecError) as refused:
            study_folder.prepare(folder, OTHER)
        assert files(tmp_path) == before
        study_folder.prepare(folder, LARGE)
    problem, *lines = refused.value.problems
    said = "another spec is planned here, and a process plays. Wait until no process plays. Choose another"
    assert problem.startswith(f"--out {tmp_path}: {said}")
    assert lines[0] == "-seeds = 2" and lines[1].startswith("+seeds = [")
    study_folder.prepare(folder, OTHER)  # nobody plays any more, and no run has ended


def test_a_plan_counts_as_played_from_its_preparation_on(tmp_path):
    """JAX starts after the preparation, which takes seconds."""
    store = FolderStore(Folder(tmp_path))
    store.prepare(SMALL)
    with pytest.raises(SpecError, match="another spec is planned here"):
        FolderStore(Folder(tmp_path)).prepare(OTHER)
    with store.playing():
        pass
    FolderStore(Folder(tmp_path)).prepare(OTHER)


def test_finished_runs_are_labelled_wherever_they_are(tmp_path):
    """Two are in the result of a smaller study, two in parts; one part is moved meanwhile."""
    folder = Folder(tmp_path)
    finish(folder, SMALL)
    part = put(folder, LARGE, [2])
    store = FolderStore(folder)
    store.prepare(LARGE)
    for runs in (LARGE.runs[:3], LARGE.runs[2:3], LARGE.runs[:2]):
        found = list(store.labelled(LARGE, runs))
        labelled = [name for one in found for name in one["identity"].values.tolist()]
        assert sorted(labelled) == sorted(run.identity for run in runs)
    other = FolderStore(folder)
    other.prepare(LARGE)
    folder.remove(part)
    with pytest.raises(OSError, match="finished runs are missing"):
        list(other.labelled(LARGE, LARGE.runs[:3]))
    assert finish(folder, LARGE)[0] == 0
    assert sum(one.sizes["run"] for one in other.labelled(LARGE, LARGE.runs[:3])) == 3


def test_a_process_that_examined_the_folder_before_a_smaller_study_ended_makes_the_same_cut(
    tmp_path, monkeypatch
):
    folder = Folder(tmp_path)
    early = study_folder.checked_contents(folder, LARGE)
    finish(folder, SMALL)
    first = study_folder.prepare(folder, LARGE).left_out
    with monkeypatch.context() as patch:
        patch.setattr(study_folder, "checked_contents", lambda *args, **options: early)
        late = study_folder.prepare(folder, LARGE)
    assert late.left_out == first == set(SMALL.identities) and late.identities == first


def test_a_smaller_study_leaves_the_plan_of_a_larger_one_that_is_played(tmp_path):
    folder = Folder(tmp_path)
    study_folder.prepare(folder, LARGE)
    with study_folder.playing(folder):
        before = files(tmp_path)
        study_folder.prepare(folder, SMALL)
        assert files(tmp_path) == before
    study_folder.prepare(folder, SMALL)
    assert spec_of(folder) == labels.spec_text(SMALL)


def test_runs_of_another_spec_are_named_and_not_taken_for_those_of_other_shards(tmp_path):
    """Both specs found the folder empty."""
    folder = Folder(tmp_path)
    study_folder.prepare(folder, SMALL)
    study_folder.prepare(folder, OTHER)
    of_small, of_other = put(folder, SMALL, [0]), put(folder, OTHER, [1])
    for plan, foreign in ((SMALL, of_other), (OTHER, of_small)):
        with pytest.raises(OSError, match=f"are missing, and runs of another spec are in {foreign}"):
            study_folder.build_if_complete(folder, plan)
    with pytest.raises(SpecError) as refused:
        study_folder.prepare(folder, OTHER)
    assert refused.value.problems[1] == f"{of_small}: holds runs that this spec lacks. Remove it to continue"
    folder.remove(of_small)
    assert finish(folder, OTHER)[0] == 0
    check(tmp_path, OTHER)


def test_a_share_of_a_smaller_study_ends_well_beside_runs_of_its_extension(tmp_path):
    folder = Folder(tmp_path)
    study_folder.prepare(folder, SMALL)
    study_folder.prepare(folder, LARGE)
    put(folder, SMALL, [0])
    put(folder, LARGE, [2, 3])
    assert study_folder.build_if_complete(folder, SMALL) == 3


def test_a_plan_is_cut_as_when_it_began_though_a_smaller_study_ends(folder):
    study_folder.prepare(folder, SMALL)
    assert study_folder.prepare(folder, LARGE).left_out == set()
    for place in range(len(SMALL.runs)):
        put(folder, SMALL, [place])
    assert study_folder.build_if_complete(folder, SMALL) == 0
    again = study_folder.prepare(folder, LARGE)
    assert again.in_result == set(SMALL.identities) and again.left_out == set()
    assert study_folder.checked_contents(folder, LARGE).left_out == set()
    assert finish(folder, LARGE)[0] == 0
    # A new plan leaves out all that is in the result when it begins.
    larger = make(seeds=5)
    for _ in range(2):
        assert study_folder.prepare(folder, larger).left_out == set(LARGE.identities)


def test_the_spec_beside_a_result_is_that_of_the_result(folder):
    """A smaller study began and was killed while the larger one was played."""
    study_folder.prepare(folder, LARGE)
    study_folder.prepare(folder, SMALL)
    for place in range(len(LARGE.runs)):
        put(folder, LARGE, [place])
    assert spec_of(folder) == labels.spec_text(SMALL)
    assert study_folder.build_if_complete(folder, LARGE) == 0
    assert spec_of(folder) == labels.spec_text(LARGE) == pausejax.open(folder.location).attrs["spec"]
    assert planned.read(folder, KINDS).identities == list(LARGE.identities)
    study_folder.prepare(folder, LARGE)


@pytest.mark.filterwarnings("ignore:All-NaN")
@pytest.mark.slow
def test_commands_say_that_a_larger_study_is_unfinished(tmp_path, capsys):
    finish(Folder(tmp_path), SMALL)
    study_folder.prepare(Folder(tmp_path), LARGE)
    for typed in (["best"], ["report", "--quiet"], ["export", "--format", "csv"]):
        with pytest.warns(UserWarning, match="this result has 4 of the 8 runs of a larger study"):
            assert cli.main([typed[0], str(tmp_path), *typed[1:]]) == cli.OK
        assert cli.main([typed[0], str(tmp_path), *typed[1:], "--partial"]) == cli.OK
    assert "4 rows" in capsys.readouterr().out
    study_folder.prepare(Folder(tmp_path), SMALL)  # the larger study has no runs, and is given up
    pausejax.open(tmp_path)


def test_a_saved_result_is_not_taken_for_part_of_a_study_that_was_planned_before(tmp_path):
    finish(Folder(tmp_path / "first"), SMALL)
    study_folder.prepare(Folder(tmp_path / "second"), LARGE)
    pausejax.save(pausejax.open(tmp_path / "first"), tmp_path / "second")
    check(tmp_path / "second", SMALL)
