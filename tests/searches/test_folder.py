"""What a killed search has left, damaged or of another version: played again, or refused in one line."""

import json
import logging
import shutil
import signal
import threading
import time
from pathlib import Path

import jax
import optuna
import pytest

from pausejax.commands.main import main
from pausejax.execution import rounds
from pausejax.execution.events import LOGGER
from pausejax.execution.stopping import NO_STOP, StopRequested, StopSignal
from pausejax.results import study_folder
from pausejax.results.folder import Folder
from pausejax.results.sealed import read_sealed, write_sealed
from pausejax.searches import search_file
from pausejax.study.spec import SpecError

from .test_command import SPEC
from .test_search import BANDIT, REGRET, Kill, assert_the_same, play

ASKED = REGRET._replace(trials=30)


def kill_after(steps):
    def on_step():
        nonlocal steps
        steps -= 1
        if not steps:
            raise Kill

    return on_step


@pytest.fixture(scope="module")
def searches(tmp_path_factory):
    """A search that came to its end, and one that was killed when some settings had ended."""
    folder = tmp_path_factory.mktemp("searches")
    whole = play(BANDIT, ASKED, Folder(folder / "whole"))
    with pytest.raises(Kill):
        play(BANDIT, ASKED, Folder(folder / "killed"), on_step=kill_after(6))
    assert len(list((folder / "killed" / "parts").glob("*.npz"))) == 6
    return folder, whole


@pytest.fixture
def said():
    """The sentences of the engine's log."""

    class Hearer(logging.Handler):
        def emit(self, record):
            self.sentences.append(record.getMessage())

    hearer, level = Hearer(), LOGGER.level
    hearer.sentences = []
    LOGGER.addHandler(hearer)
    LOGGER.setLevel(logging.INFO)
    yield hearer.sentences
    LOGGER.removeHandler(hearer)
    LOGGER.setLevel(level)


@pytest.fixture
def killed(searches, tmp_path):
    """A copy of the killed search; `whole` beside it has what it must come to."""
    folder, _ = searches
    shutil.copytree(folder / "killed", tmp_path / "again")
    (tmp_path / "whole").symlink_to(folder / "whole")
    return tmp_path / "again"


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path):
    path.write_bytes(path.read_bytes()[:-20])


def ends_as_the_whole(searches, out):
    again = play(BANDIT, ASKED, Folder(out))
    assert_the_same(searches[1], again, out.parent)
    assert not (out / "parts").exists()


def parts(out):
    return sorted((out / "parts").glob("*.npz"))


@pytest.mark.parametrize("damage", [flip, cut], ids=["flip", "cut"])
def test_a_damaged_part_is_played_again_and_that_is_said(searches, killed, said, damage):
    damaged = parts(killed)[1]
    damage(damaged)
    ends_as_the_whole(searches, killed)
    (line,) = [sentence for sentence in said if "damaged" in sentence]
    assert line == f"parts/{damaged.name}: was damaged, so its runs were simulated again"


@pytest.mark.slow
def test_parts_that_changed_places_are_played_again(searches, killed):
    one, other = parts(killed)[:2]
    one.rename(killed / "beside")
    other.rename(one)
    (killed / "beside").rename(other)
    ends_as_the_whole(searches, killed)


@pytest.mark.slow
@pytest.mark.parametrize("damage", [flip, cut], ids=["flip", "cut"])
def test_what_was_asked_is_put_down_again_by_the_same_command(searches, killed, said, damage):
    before = (killed / "search.json").read_bytes()
    damage(killed / "search.json")
    ends_as_the_whole(searches, killed)
    assert (killed / "search.json").read_bytes() == before
    assert any("search.json" in sentence and "damaged" in sentence for sentence in said)


def test_what_was_asked_is_not_put_down_again_for_another_spec(killed):
    flip(killed / "search.json")
    with pytest.raises(SpecError) as refused:
        play({**BANDIT, "rounds": 50}, ASKED, Folder(killed))
    (line,) = refused.value.problems
    assert "search.json is damaged" in line and "Repeat the command" in line and "another folder" in line


@pytest.mark.slow
def test_a_search_that_was_killed_between_its_first_two_files_begins(searches, tmp_path):
    folder, _ = searches
    (tmp_path / "again").mkdir()
    shutil.copy(folder / "whole" / study_folder.SPEC, tmp_path / "again")
    (tmp_path / "whole").symlink_to(folder / "whole")
    ends_as_the_whole(searches, tmp_path / "again")


@pytest.mark.slow
@pytest.mark.parametrize("damage", [flip, Path.unlink], ids=["flip", "remove"])
def test_another_search_replaces_no_result(searches, tmp_path, damage):
    whole, again = searches[0] / "whole", tmp_path / "again"
    shutil.copytree(whole, again)
    (tmp_path / "whole").symlink_to(whole)
    damage(again / "search.json")
    before = {path: path.read_bytes() for path in again.rglob("*") if path.is_file()}
    for other in (ASKED._replace(sampler="random"), ASKED._replace(trials=8)):
        with pytest.raises(SpecError, match=r"search\.json is missing or damaged, and the result has other"):
            play(BANDIT, other, Folder(again))
    assert before == {path: path.read_bytes() for path in before}
    ends_as_the_whole(searches, again)
    assert (again / "search.json").read_bytes() == (whole / "search.json").read_bytes()


def test_another_optuna_is_refused_before_anything_is_played(killed, monkeypatch):
    monkeypatch.setattr(optuna, "__version__", "4.2.1")
    monkeypatch.setattr(rounds, "play_rounds", None)
    with pytest.raises(SpecError) as refused:
        play(BANDIT, ASKED, Folder(killed))
    (line,) = refused.value.problems
    written = json.loads((killed / "search.json").read_text())["content"]["versions"]["optuna"]
    assert f"Optuna {written}" in line and "4.2.1" in line
    assert "another folder" in line


@pytest.mark.slow
def test_the_spec_is_written_by_whoever_goes_on(searches, killed):
    """Its writer may have been killed between search.json and spec.toml."""
    (killed / study_folder.SPEC).unlink()
    ends_as_the_whole(searches, killed)
    assert (killed / study_folder.SPEC).read_bytes() == (
        killed.parent / "whole" / study_folder.SPEC
    ).read_bytes()


@pytest.mark.slow
def test_a_part_that_is_gone_is_played_again(searches, killed):
    parts(killed)[0].unlink()
    ends_as_the_whole(searches, killed)


@pytest.mark.slow
def test_what_lies_in_the_place_of_a_file_is_replaced(searches, killed):
    part = parts(killed)[1]
    part.unlink()
    part.mkdir()
    ends_as_the_whole(searches, killed)


def test_old_folders_are_refused_in_a_line(killed):
    """Releases before did not put down which Optuna had made the suggestions."""
    held = read_sealed(Folder(killed), "search.json")
    del held["versions"]
    write_sealed(Folder(killed), "search.json", held)
    with pytest.raises(SpecError, match="did not record the version of Optuna"):
        play(BANDIT, ASKED, Folder(killed))


@pytest.mark.slow
def test_the_command_says_what_is_damaged_and_how_far_the_confirmation_is(tmp_path, capsys):
    (tmp_path / "spec.toml").write_text(SPEC)
    typed = ["search", str(tmp_path / "spec.toml"), "--out", str(tmp_path / "out"), "--trials", "6"]
    typed += ["--metric", "cumulative_pseudo_regret", "--fresh-seeds", "2", "--no-report", "--log", "json"]
    assert main(typed) == 0
    events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    starts = [event for event in events if event["event"] == "start"]
    assert [("trials" in event, "runs" in event) for event in starts] == [(True, False), (False, True)]
    assert starts[1]["runs"] == 6 and events[-1]["event"] == "end" and events[-1]["finished"] == 6
    chunks = tmp_path / "out" / "results.zarr" / "reward" / "c"
    cut(next(path for path in chunks.rglob("*") if path.is_file()))
    assert main(typed) == 0
    shown, err = capsys.readouterr()
    assert (
        "results.zarr" in shown.splitlines()[0] and "was damaged, so its runs were simulated again" in shown
    )
    events = [json.loads(line) for line in err.splitlines()]
    assert "damaged" in {event["event"] for event in events}


def test_nothing_is_played_for_what_does_not_fit():
    with pytest.raises(SpecError, match=r"policy pause: does not fit into memory: every device holds .* GB"):
        play(BANDIT, REGRET, device_memory=1000)


def out_of_memory(monkeypatch, most):
    """Has the devices run out of memory where more runs than some lie side by side."""
    play_rounds = rounds.play_rounds

    def bounded(program, *more):
        if program.executable().width > most:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.")
        return play_rounds(program, *more)

    monkeypatch.setattr(rounds, "play_rounds", bounded)


@pytest.mark.slow
def test_a_search_that_runs_out_of_memory_goes_on_with_half_as_many_runs(searches, tmp_path, monkeypatch):
    _, whole = searches
    out_of_memory(monkeypatch, 1)
    again = play(BANDIT, ASKED, Folder(tmp_path / "again"))
    assert [trial.setting for trial in again.trials] == [trial.setting for trial in whole.trials]


@pytest.mark.slow
def test_one_run_that_runs_out_of_memory_ends_the_search_in_a_line(monkeypatch):
    out_of_memory(monkeypatch, 0)
    with pytest.raises(OSError, match="policy pause: out of memory even with one run at a time") as error:
        play(BANDIT, ASKED)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_two_processes_that_play_one_search_leave_one_result(searches, tmp_path):
    """The second ends while the first has runs to read that lie in the result now.

    The command lets the second wait, where the system has locks.
    """
    folder, _ = searches
    (tmp_path / "whole").symlink_to(folder / "whole")
    steps = 0

    def beside():
        nonlocal steps
        steps += 1
        if steps == 4:
            play(BANDIT, ASKED, Folder(tmp_path / "again"))

    first = play(BANDIT, ASKED, Folder(tmp_path / "again"), on_step=beside)
    assert_the_same(searches[1], first, tmp_path)


def test_a_search_whose_files_have_changed_is_refused_in_a_line(tmp_path):
    """At once, whether `search.json` is intact or damaged."""
    folder = Folder(tmp_path)
    wanted = {"spec": "", "options": {}, "versions": {}, "files": {"my.py": "1", "trace.csv": "2"}}
    search_file.write(folder, {**wanted, "lists": 1})
    folder.write(study_folder.SPEC, b"")
    write_sealed(folder, study_folder.FILES, wanted["files"])
    assert search_file.read(folder, wanted)["lists"] == 1
    edited = {**wanted, "files": {**wanted["files"], "my.py": "3"}}
    with pytest.raises(SpecError) as refused:
        search_file.read(folder, edited)
    (line,) = refused.value.problems
    assert line == (
        f"--out {tmp_path}: the content of my.py has changed since the search began. Put the old "
        "content back (used/ has copies of the files of `use`), or choose another folder"
    )
    flip(tmp_path / "search.json")
    assert search_file.read(folder, wanted) is None
    with pytest.raises(SpecError, match=r"search.json is damaged\. Repeat the command"):
        search_file.read(folder, edited)


@pytest.mark.slow
def test_a_search_with_an_edited_part_of_its_own_changes_nothing_in_its_folder(tmp_path, capsys):
    own = tmp_path / "my.py"
    own.write_text(
        "from pausejax import parts\n\n\n@parts.quantity(reduce='mean', units='1')\ndef one(seen):\n"
        "    'one in every round'\n    return 0.0 * seen.latency.max() + 1.0\n"
    )
    (tmp_path / "spec.toml").write_text(f'use = ["my.py"]\nquantities = ["one"]\n{SPEC}')
    typed = ["search", str(tmp_path / "spec.toml"), "--out", str(tmp_path / "out"), "--trials", "2"]
    typed += ["--fresh-seeds", "2", "--no-report", "--quiet"]
    assert main(typed) == 0
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    own.write_text(own.read_text().replace("0.0 *", "1.0 *"))
    assert main(typed) == 2
    assert "the content of my.py has changed since the search began" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()} == before


def test_a_process_waits_while_another_plays_the_search(tmp_path, said):
    """The wait ends when the other process ends, or when a signal asks the waiting process to stop."""
    folder, stopping = Folder(tmp_path / "out"), StopSignal()
    order = []

    def wait():
        with search_file.alone(folder, NO_STOP):
            order.append("second")

    def stop():
        with pytest.raises(StopRequested), search_file.alone(folder, stopping):
            order.append("stopped too late")
        order.append("stopped")

    folder.make()
    threads = [threading.Thread(target=wait), threading.Thread(target=stop)]
    with search_file.alone(folder, NO_STOP):
        for thread in threads:
            thread.start()
        for _ in range(3000):
            time.sleep(0.01 * (len(said) < 2))
        stopping.note(signal.SIGTERM, None)
        threads[1].join(timeout=30)
        order.append("first")
    threads[0].join(timeout=30)
    assert order == ["stopped", "first", "second"]
    assert set(said) == {f"{folder}: another process plays this search. This process waits for it"}
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_fewer_fresh_seeds_are_refused_with_a_way_out(tmp_path, capsys):
    (tmp_path / "spec.toml").write_text(SPEC)
    typed = ["search", str(tmp_path / "spec.toml"), "--out", str(tmp_path / "out"), "--trials", "2"]
    typed += ["--no-report", "--quiet", "--fresh-seeds"]
    assert main([*typed, "3"]) == 0
    assert main([*typed, "2"]) == 2
    way_out = f"Or remove {tmp_path}/out/confirmation. The same command then simulates"
    assert way_out in capsys.readouterr().err
    shutil.rmtree(tmp_path / "out" / "confirmation")
    assert main([*typed, "2"]) == 0


def test_a_mistake_is_said_before_a_process_waits_for_another(tmp_path, capsys):
    (tmp_path / "spec.toml").write_text(SPEC)
    typed = [
        "search",
        str(tmp_path / "spec.toml"),
        "--out",
        str(tmp_path / "out"),
        "--trials",
        "2",
        "--quiet",
    ]
    with search_file.alone(Folder(tmp_path / "out"), NO_STOP):
        assert main([*typed, "--metric", "nonsense"]) == 2
    assert "metric nonsense" in capsys.readouterr().err.replace("'", "")
