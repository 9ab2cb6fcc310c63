"""What `pausejax plan --out DIR` says is left, against what `pausejax run` then plays and compiles."""

import logging

import pytest

from pausejax.commands import main as cli
from pausejax.data.host import DataCache
from pausejax.execution.estimate import group_costs
from pausejax.execution.local import LocalExecutor
from pausejax.kinds import load
from pausejax.results.folder import Folder
from pausejax.results.stores import FolderView
from pausejax.study.plan import make_plan

NETWORK = "[network]\nnum_clients = 6\nclients_per_round = 2\n"
POLICIES = '[[policy]]\nname = "pause"\n[[policy]]\nname = "random"\n'
BANDIT = f'mode = "bandit"\nrounds = 6\n{NETWORK}{POLICIES}'
RANDOM = f'mode = "bandit"\nrounds = 6\n{NETWORK}[[policy]]\nname = "random"\n'


class Study:
    """A spec and its folder."""

    def __init__(self, folder, text):
        self.spec, self.out = folder / "spec.toml", folder / "out"
        self.spec.write_text(text)

    def plan(self, seeds):
        return make_plan(load(self.spec, [f"seeds={seeds}"]))

    def costs(self, seeds):
        executor = LocalExecutor(DataCache())
        return group_costs(
            self.plan(seeds), executor, compiles=False, store=FolderView(Folder(str(self.out)))
        )

    def run(self, seeds, caplog):
        """{Policy: width} of every program that a run compiles, and how many runs it plays."""
        caplog.clear()
        arguments = ["run", str(self.spec), "--out", str(self.out), "--set", f"seeds={seeds}"]
        with caplog.at_level(logging.INFO, "pausejax"):
            assert cli.main([*arguments, "--no-report", "--quiet"]) == cli.OK
        said = [(record.event, record.fields) for record in caplog.records if hasattr(record, "event")]
        compiled = [(f["policy"], f["width"]) for event, f in said if event == "compiled"]
        assert len(dict(compiled)) == len(compiled)
        return dict(compiled), sum(f["runs"] for event, f in said if event == "batch")

    def line(self, seeds, capsys):
        """What the command says of what is left."""
        capsys.readouterr()
        arguments = ["plan", str(self.spec), "--out", str(self.out), "--set", f"seeds={seeds}"]
        assert cli.main(arguments) == cli.OK
        return capsys.readouterr().out.splitlines()[1]

    def files(self):
        found = sorted(path for path in self.out.rglob("*") if path.is_file())
        return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in found}


def foreseen(costs):
    return {cost.label.partition("(")[2][:-1]: cost.width for cost in costs}, sum(c.runs for c in costs)


@pytest.mark.slow
def test_a_plan_foresees_the_programs_of_an_extension(tmp_path, caplog, capsys):
    study = Study(tmp_path, RANDOM)
    assert study.line(4, capsys) == "none of the 4 runs is finished" and not study.out.exists()
    assert foreseen(study.costs(4)) == ({"random": 4}, 4) == study.run(4, caplog)
    before = study.files()
    assert study.line(4, capsys) == "all 4 runs are finished: nothing is left to compile or to play"

    assert study.line(5, capsys) == "4 of 5 runs are finished; the other runs need one program"
    extension = foreseen(study.costs(5))
    assert study.files() == before, "looking has changed the folder"
    assert extension == ({"random": 1}, 1) == study.run(5, caplog)

    # Four more are as many side by side as in the beginning: the program is that of then.
    assert study.line(9, capsys) == "5 of 9 runs are finished; the other runs need one program"
    assert foreseen(study.costs(9)) == ({"random": 4}, 4)


@pytest.mark.slow
def test_an_interrupted_study_takes_the_programs_that_it_had_left(tmp_path, caplog, capsys, monkeypatch):
    """What is done of it lies in parts: batches keep their width, and nothing is an extension."""
    study, play = Study(tmp_path, BANDIT), LocalExecutor._execute_batch

    def play_pause_alone(self, study, batch, *more):
        if batch.group.algorithm == "random":
            raise KeyboardInterrupt
        return play(self, study, batch, *more)

    with monkeypatch.context() as patch:
        patch.setattr(LocalExecutor, "_execute_batch", play_pause_alone)
        arguments = ["run", str(study.spec), "--out", str(study.out), "--set", "seeds=4", "--quiet"]
        assert cli.main(arguments) not in (cli.OK, 2)
    assert study.line(4, capsys) == "4 of 8 runs are finished; the other runs need one program"
    assert foreseen(study.costs(4)) == ({"random": 4}, 4) == study.run(4, caplog)


@pytest.mark.slow
def test_a_folder_of_another_study_is_refused(tmp_path, caplog, capsys):
    study = Study(tmp_path, RANDOM)
    study.run(2, caplog)
    study.spec.write_text(RANDOM.replace("rounds = 6", "rounds = 7"))
    arguments = ["plan", str(study.spec), "--out", str(study.out), "--set", "seeds=2"]
    assert cli.main(arguments) == 2
    assert "holds runs of another spec" in capsys.readouterr().err
