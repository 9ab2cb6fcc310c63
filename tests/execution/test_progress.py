"""Progress of a study: lines at their times, bars, and numbers that add up."""

import io
import json
import re
import subprocess
import sys
from typing import NamedTuple

import pytest
import rich.console

from pausejax.execution import displays, events
from pausejax.execution.progress import Message, StudyMeter
from pausejax.kinds import parse
from pausejax.study.plan import make_plan

SPEC = """
name = "a small study"
mode = "bandit"
rounds = 100
seeds = 3
[network]
num_clients = 6
clients_per_round = 2
[[policy]]
name = "pause"
[[policy]]
name = "random"
"""
STUDY = {
    "name": "a small study",
    "mode": "bandit",
    "rounds": 100,
    "seeds": 3,
    "network": {"num_clients": 6, "clients_per_round": 2},
    "policy": [{"name": "pause"}, {"name": "random"}],
}


ENSEMBLE = {"mode": "ensemble", "seeds": 2, "policy": [{"name": "efl_fg"}]}


class Screen(NamedTuple):
    """What rich says of where stderr goes."""

    is_terminal: bool
    is_jupyter: bool


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture(scope="module")
def plan():
    return make_plan(parse(STUDY))


class Watched:
    """A study that is watched: its meter, its display, a clock, and what is written."""

    def __init__(self, plan, as_json=False):
        self.clock, self.written = Clock(), []
        self.meter = StudyMeter(plan, "1 × cpu", self.clock)
        self.lines = displays.Lines(as_json=as_json, clock=self.clock, write=self.written.append)
        self.lines.line(self.meter.start())

    def hear(self, event, sentence="", **fields):
        if self.meter.hear(event, fields):
            self.lines.line(Message(event, sentence, fields))

    def found(self, before, left, programs):
        self.hear(
            "found", f"{before} of {before + left} are there", runs=before, left=left, programs=programs
        )

    def at(self, second, played=0):
        """The study has played so much more, and so many seconds have passed."""
        self.clock.now = Clock.now + second
        self.meter(played)
        self.lines.status(self.meter.status())

    def seconds(self, first, last):
        for second in range(first, last + 1):
            self.at(second)

    def end(self, completed=True):
        self.lines.line(self.meter.end(completed))

    @property
    def told(self):
        return [json.loads(line) for line in self.written]


def test_a_line_at_the_start_every_half_minute_at_every_batch_and_at_the_end(plan):
    study = Watched(plan)
    assert re.fullmatch(r"\[0:00:00\] \S+ 6 runs in 2 groups, 100 rounds each, on 1 × cpu", study.written[0])
    study.seconds(1, 60)
    assert study.written[1:] == [
        "[0:00:30] 0 of 6 runs finished, 0%, compiling, 0 of 2 programs ready",
        "[0:01:00] 0 of 6 runs finished, 0%, compiling, 0 of 2 programs ready",
    ]
    study.at(75, 300)
    study.hear("batch", "finished 3 runs", policy="pause", runs=3)
    study.at(89)
    study.at(90)
    # 300 rounds in the 30 s since nothing was played; 300 are left.
    assert study.written[3:] == [
        "[0:01:15] finished 3 runs",
        "[0:01:30] 3 of 6 runs finished, 50%, 10 rounds/s, 0:00:30 left",
    ]
    study.at(100, 300)
    study.hear("batch", "finished 3 runs", policy="random", runs=3)
    study.end()
    assert study.written[-1] == "[0:01:40] done after 0:01:40: 6 of 6 runs finished, 6 rounds/s"


def test_time_in_which_programs_were_compiled_is_no_speed(plan):
    """One of two programs plays slowly beside the compiler; no time is told until both play."""
    study = Watched(plan)
    for second, played in ((29, 1), (59, 299)):
        study.clock.now = Clock.now + second
        study.meter(played)
        study.hear("compiled", "compiled pause", policy="pause")
        study.at(second + 1)
    study.at(90, 150)
    told = [line for line in study.written if "finished," in line]
    assert [line.endswith(" left") for line in told] == [False, False, True]
    assert told[2] == "[0:01:30] 0 of 6 runs finished, 75%, 5 rounds/s, 0:00:31 left"


def test_rounds_of_before_are_said_and_are_no_speed(plan):
    """A task that goes on from a checkpoint is told of all its rounds at once."""
    study = Watched(plan)
    study.hear("resumed", "3 runs go on from round 80", runs=3, round=80, rounds=100)
    study.at(30, 240)
    study.at(60, 30)
    study.at(90, 30)
    assert study.written[1:] == [
        "[0:00:00] 3 runs go on from round 80",
        "[0:00:30] 0 of 6 runs finished, 40%, compiling, 0 of 2 programs ready",
        "[0:01:00] 0 of 6 runs finished, 45%, 1 rounds/s, 0:05:30 left",
        "[0:01:30] 0 of 6 runs finished, 50%, 1 rounds/s, 0:05:00 left",
    ]
    study.end(False)
    assert study.written[-1] == "[0:01:30] stopped after 0:01:30: 0 of 6 runs finished, 1 rounds/s"


def test_json_has_the_same_as_fields(plan):
    study = Watched(plan, as_json=True)
    study.found(2, 4, 2)
    study.at(40, 100)
    study.hear("batch", "finished 1 run", policy="pause", runs=1)
    study.end(False)
    assert [line["event"] for line in study.told] == ["start", "found", "progress", "batch", "end"]
    start, found, middle, part, end = study.told
    assert (part["policy"], part["runs"]) == ("pause", 1)
    assert (start["runs"], start["groups"], start["rounds"], start["devices"]) == (6, 2, 100, "1 × cpu")
    assert (found["runs"], found["left"]) == (2, 4)
    # Of the 400 rounds × runs that are this process's; what was there before counts for no speed.
    assert middle == {
        "event": "progress",
        "seconds": 40.0,
        "finished": 0,
        "runs": 4,
        "part": 0.25,
        "rounds_per_second": 2.5,
        "seconds_left": 120.0,
    }
    assert (end["completed"], end["finished"], end["runs"], end["part"]) == (False, 1, 4, 0.25)


def test_speed_is_that_of_the_last_minutes_and_a_standstill_has_no_time_left(plan):
    study = Watched(plan, as_json=True)
    study.meter(300)
    for line in range(1, 13):
        study.at(30.0 * line)
    speeds = [line["rounds_per_second"] for line in study.told[1:]]
    assert speeds == [round(300 / (30 * line), 1) for line in range(1, 11)] + [0.0, 0.0]
    last = study.told[-1]
    assert last["seconds_left"] is None and last["part"] == 0.5


def test_when_all_is_played_no_time_is_left(plan):
    study = Watched(plan, as_json=True)
    study.at(31, 600)
    last = study.told[-1]
    assert (last["event"], last["part"], last["seconds_left"]) == ("progress", 1.0, 0.0)
    # What another process hands over may be more than was counted on.
    study.at(62, 60)
    assert study.told[-1]["part"] == 1.0


def test_a_study_without_rounds_counts_runs_alone():
    study, fields = (Watched(make_plan(parse(ENSEMBLE)), as_json) for as_json in (False, True))
    for watched in (study, fields):
        watched.found(1, 1, 1)
        watched.at(50, 0.5)
        watched.end()
    assert study.written[2:] == [
        "[0:00:50] 0 of 1 run finished, 50%, 0.01 runs/s, 0:00:50 left",
        "[0:00:50] done after 0:00:50: 0 of 1 run finished, 0.01 runs/s",
    ]
    middle, end = fields.told[2:]
    assert (middle["rounds_per_second"], middle["part"], middle["seconds_left"]) == (None, 0.5, 50.0)
    assert end["rounds_per_second"] is None


def test_a_log_that_cannot_be_written_ends_nothing(plan):
    def full(line):
        raise OSError(28, "No space left on device")

    displays.Lines(as_json=False, write=full).line(StudyMeter(plan, "1 × cpu").start())


def test_the_executor_is_heard_while_it_is_listened_to_and_no_longer(plan, capsys):
    before = (list(events.LOGGER.handlers), events.LOGGER.level)

    def fail():
        with displays.showing(StudyMeter(plan, "1 × cpu"), "text"):
            events.say("compiled", "compiled pause", policy="pause", took=1.0)
            raise ValueError

    with pytest.raises(ValueError):
        fail()
    events.say("compiled", "compiled random")
    written = capsys.readouterr().err.splitlines()
    assert [line.split("] ")[1] for line in written[1:2]] == ["compiled pause"]
    assert "stopped after" in written[-1] and len(written) == 3
    assert (list(events.LOGGER.handlers), events.LOGGER.level) == before


@pytest.mark.parametrize(
    ("terminal", "jupyter", "form"),
    [(True, False, "bar"), (False, True, "bar"), (False, False, "text")],
)
def test_a_bar_where_somebody_watches_and_text_elsewhere(monkeypatch, terminal, jupyter, form):
    monkeypatch.setattr(displays, "Console", lambda stderr: Screen(stderr and terminal, stderr and jupyter))
    assert displays.default_form() == form


def test_lines_and_bars_go_to_stderr_as_is_asked(plan, capsys):
    for form, wanted in (
        ("text", "] skips 2 of 6 runs"),
        ("json", '"event": "found"'),
        ("bar", "done after 0:00:00: 0 of 4 runs finished"),
    ):
        meter = StudyMeter(plan, "1 × cpu")
        with displays.showing(meter, form):
            events.found(2, 4, 2)
            meter(400)
        out, err = capsys.readouterr()
        err = " ".join(err.split())
        assert not out and wanted in err and ("1 × cpu" in err) == (form == "text"), form
        assert form != "json" or '"programs": 2' in err
        assert form != "json" or '"devices": "1 \\u00d7 cpu"' in err


@pytest.mark.slow
def test_the_command_writes_its_log_to_a_file(tmp_path):
    (tmp_path / "spec.toml").write_text(SPEC)
    arguments = ["run", "spec.toml", "--out", "out", "--no-report", "--lanes", "2"]
    command = [sys.executable, "-m", "pausejax", *arguments]
    with open(tmp_path / "log", "w") as log:
        done = subprocess.run(
            command, cwd=tmp_path, stderr=log, stdout=subprocess.PIPE, text=True, timeout=300
        )
    written = (tmp_path / "log").read_text().splitlines()
    assert done.returncode == 0, written
    assert "6 runs in 2 groups, 100 rounds each, on 2 × cpu" in written[0]
    assert sum("pause: 3 runs, up to 2 side by side over 2 devices" in line for line in written) == 1
    assert sum("finished 2 runs of pause" in line for line in written) == 1
    assert sum("finished 1 run of" in line for line in written) == 2
    assert sum("compiled" in line for line in written) == 2
    assert "6 of 6 runs finished" in written[-1]
    assert "6 runs in" in done.stdout
    command += ["--set", "seeds=4", "--log", "json"]
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    told = [json.loads(line) for line in again.stderr.splitlines()]
    assert sorted(line["event"] for line in told[2:-1]) == [*["batch"] * 2, *["compiled"] * 2, *["group"] * 2]
    assert [told[place]["event"] for place in (0, 1, -1)] == ["start", "found", "end"]
    assert (told[1]["runs"], told[1]["left"], told[-1]["finished"]) == (6, 2, 2)


class Cell:
    """The output of a notebook's cell."""

    def __init__(self):
        self.shown = []

    def display(self, html, display_id):
        assert display_id is True  # else there is no handle to update
        return self

    def update(self, html):
        self.shown.append(html.data)


@pytest.mark.parametrize("jupyter", [False, True])
def test_warnings_are_shown_beside_a_bar(plan, monkeypatch, capsys, jupyter):
    if jupyter:
        pytest.importorskip("IPython")
        monkeypatch.setattr("IPython.display.display", Cell().display)
        monkeypatch.setattr(displays, "Console", lambda stderr: Screen(False, stderr))
    with displays.showing(StudyMeter(plan, "1 × cpu"), "bar"):
        events.compiled("pause", 8, 1.0)
        events.narrowed("pause", 8, 4)
    shown = " ".join(capsys.readouterr().err.split())
    assert "pause: only 4 runs fit side by side, not 8" in shown and "compiled the program" not in shown


def test_the_bar_of_a_terminal_goes_on_with_the_rounds(plan, monkeypatch):
    screen, clock = io.StringIO(), Clock()
    console = rich.console.Console(file=screen, force_terminal=True, width=100, get_time=clock)
    monkeypatch.setattr(displays, "Console", lambda stderr: console)
    meter = StudyMeter(plan, "1 × cpu")

    def fail():
        with displays.showing(meter, "bar"):
            meter(300)
            meter.hear("batch", {"runs": 3})
            raise ValueError

    with pytest.raises(ValueError):
        fail()
    last = screen.getvalue().rpartition("\r")[2]
    colors = re.findall(r"\x1b\[([\d;]+)m[━╸╺]+", last)
    assert len(set(colors)) == 2, last  # of what is played, and of what is left
    assert " stopped after 0:00:00: 3 of 6 runs finished" in last


def test_rounds_that_nobody_plays_are_in_no_speed():
    """Runs that a simulated time has ended count as whole, and their speed is that of the played rounds."""
    plan = make_plan(parse({"mode": "bandit", "rounds": 1000, "seeds": 4, "policy": [{"name": "random"}]}))
    now = [0.0]
    meter = StudyMeter(plan, "a device", lambda: now[0])
    meter(4 * 10)
    meter.hear("ended_early", {"runs": 4, "round": 10, "rounds": 1000})
    meter(4 * 990)
    now[0] = 20.0
    assert meter.status().fields["part"] == 1 and meter.end(True).fields["rounds_per_second"] == 2
