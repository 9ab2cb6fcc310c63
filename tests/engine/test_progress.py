"""What a study says while it runs: lines at their times, and numbers that add up."""

import datetime
import io
import json
import logging
import re
import subprocess
import sys
from typing import NamedTuple

import pytest
import rich.console

from pausejax.engine import events, lines, progress
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


def logs(plan, as_json=False):
    clock, written = Clock(), []
    return lines.Log(plan, "1 × cpu", as_json=as_json, clock=clock, write=written.append), clock, written


def chunk(log, runs, policy="pause"):
    record = logging.LogRecord("pausejax", logging.INFO, "", 0, "%s", (f"finished {runs} runs",), None)
    record.event, record.fields = "chunk", {"policy": policy, "runs": runs}
    log.handle(record)


def at(clock, log, second):
    clock.now = 1000.0 + second
    log.tick()


def test_a_line_at_the_start_every_half_minute_at_every_chunk_and_at_the_end(plan):
    log, clock, written = logs(plan)
    assert re.fullmatch(r"\[0:00:00\] \S+ 6 runs in 2 groups, 100 rounds each, on 1 × cpu", written[0])
    log(0)
    for second in range(1, 61):
        at(clock, log, second)
    assert written[1:] == [
        "[0:00:30] 0 of 6 runs finished, 0%, compiling",
        "[0:01:00] 0 of 6 runs finished, 0%, compiling",
    ]
    clock.now = 1075.0
    log(300)
    chunk(log, 3)
    at(clock, log, 89)
    at(clock, log, 90)
    # 300 rounds in the 30 s since the last line that found nothing played; 300 are left.
    assert written[3:] == [
        "[0:01:15] finished 3 runs",
        "[0:01:30] 3 of 6 runs finished, 50%, 10 rounds/s, 0:00:30 left",
    ]
    log(300)
    clock.now = 1100.0
    chunk(log, 3)
    log.end(True)
    assert written[-1] == "[0:01:40] done after 0:01:40: 6 of 6 runs finished, 6 rounds/s"


def test_before_the_first_rounds_are_played_it_says_what_is_being_done(plan):
    log, clock, written = logs(plan)
    log(0)
    at(clock, log, 30)
    record = logging.LogRecord("pausejax", logging.INFO, "", 0, "%s", ("compiled pause",), None)
    record.event, record.fields = "compiled", {"policy": "pause"}
    log.handle(record)
    at(clock, log, 60)
    assert written[1].endswith("0%, compiling") and written[3].endswith("0%, playing the first rounds")


def test_json_has_the_same_as_fields(plan):
    log, clock, written = logs(plan, as_json=True)
    log(200)
    log(100)
    at(clock, log, 40)
    chunk(log, 1)
    log.end(False)
    told = [json.loads(line) for line in written]
    assert [line["event"] for line in told] == ["start", "found", "progress", "chunk", "end"]
    start, found, middle, part, end = told
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
    assert (end["completed"], end["finished"], end["runs"]) == (False, 1, 4)


def test_speed_is_that_of_the_last_minutes_and_a_standstill_has_no_time_left(plan):
    log, clock, written = logs(plan, as_json=True)
    log(0)
    log(300)
    for line in range(1, 13):
        at(clock, log, 30.0 * line)
    speeds = [json.loads(line)["rounds_per_second"] for line in written[1:]]
    # The ten lines before the eleventh know of no round more than it.
    assert speeds == [round(300 / (30 * line), 1) for line in range(1, 11)] + [0.0, 0.0]
    last = json.loads(written[-1])
    assert last["seconds_left"] is None and last["part"] == 0.5


def test_when_all_is_played_no_time_is_left(plan):
    log, clock, written = logs(plan, as_json=True)
    log(0)
    log(600)
    at(clock, log, 31)
    last = json.loads(written[-1])
    assert (last["event"], last["part"], last["seconds_left"]) == ("progress", 1.0, 0.0)
    # What another process hands over may be more than was counted on.
    log(60)
    at(clock, log, 62)
    assert json.loads(written[-1])["part"] == 1.0


def test_fields_have_as_many_digits_as_anybody_reads(plan):
    """Of a part 4, of a speed and of seconds that are left 1, of the time 3."""
    log, clock, written = logs(plan, as_json=True)
    start = json.loads(written[0])
    datetime.datetime.strptime(start["time"], "%Y-%m-%dT%H:%M:%S%z")
    assert start["study"] == "a small study"
    log(0)
    log(100)
    at(clock, log, 30.0123456)
    middle = json.loads(written[-1])
    speed = 100 / 30.0123456
    assert (middle["seconds"], middle["part"]) == (30.012, 0.1667)
    assert (middle["rounds_per_second"], middle["seconds_left"]) == (round(speed, 1), round(500 / speed, 1))
    assert middle["seconds_left"] == 150.1
    log.end(True)
    end = json.loads(written[-1])
    assert (end["runs"], end["rounds_per_second"]) == (6, 3.3)


def test_a_study_that_took_no_time_had_no_speed(plan):
    log, _, written = logs(plan)
    log(0)
    log(600)
    log.end(True)
    assert written[-1] == "[0:00:00] done after 0:00:00: 0 of 6 runs finished, 0 rounds/s"


def test_more_than_everything_and_nothing_to_do_break_no_line(plan):
    log, clock, written = logs(plan)
    log(600)
    at(clock, log, 31)
    log(50)
    at(clock, log, 62)
    log.end(True)
    assert "0 of 0 runs finished" in written[-1] and len(written) == 5


def test_a_study_without_rounds_counts_runs_alone():
    log, clock, written = logs(make_plan(parse(ENSEMBLE)))
    log(1)
    log(5000)
    at(clock, log, 50)
    assert written[1].endswith("1 of 2 runs are there already, or other processes' work")
    assert written[2] == "[0:00:50] 0 of 1 run finished, 100 rounds/s"


def test_a_log_that_cannot_be_written_ends_nothing(plan):
    def full(line):
        raise OSError(28, "No space left on device")

    log = lines.Log(plan, "1 × cpu", as_json=False, write=full)
    log(0)
    log.end(True)


def test_the_engine_is_heard_while_it_is_listened_to_and_no_longer(plan):
    log, _, written = logs(plan)
    before = (list(events.LOGGER.handlers), events.LOGGER.level)

    def fail():
        with lines.listening(log):
            events.say("compiled", "compiled pause", policy="pause", took=1.0)
            raise ValueError

    with pytest.raises(ValueError):
        fail()
    events.say("compiled", "compiled random")
    assert [line.split("] ")[1] for line in written[1:2]] == ["compiled pause"]
    assert "stopped after" in written[-1] and len(written) == 3
    with lines.listening(log):
        pass
    assert "done after" in written[-1] and len(written) == 4
    assert (list(events.LOGGER.handlers), events.LOGGER.level) == before


def test_quiet_says_nothing(plan, capsys):
    with progress.reporting(plan, None, "1 × cpu") as advance:
        advance(600)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("terminal", "jupyter", "form"),
    [(True, False, "bar"), (False, True, "bar"), (False, False, "text")],
)
def test_a_bar_where_somebody_watches_and_text_elsewhere(monkeypatch, terminal, jupyter, form):
    monkeypatch.setattr(progress, "Console", lambda stderr: Screen(stderr and terminal, stderr and jupyter))
    assert progress.default_form() == form


def test_lines_and_bars_go_to_stderr_as_is_asked(plan, capsys):
    for form, wanted in (
        ("text", "] 2 of 6 runs are there"),
        ("json", '"event": "found"'),
        ("bar", "6/6 runs"),
    ):
        with progress.reporting(plan, form, "1 × cpu") as advance:
            advance(200 if form != "bar" else 600)
        out, err = capsys.readouterr()
        assert not out and wanted in err and ("1 × cpu" in err) == (form == "text"), form
        if form == "json":
            told = [json.loads(line) for line in err.splitlines()]
            assert told[0]["devices"] == "1 × cpu" and told[-1]["completed"]


def test_a_notebook_has_a_bar_in_its_cell_only_on_request(plan, cell, monkeypatch, capsys):
    monkeypatch.setattr(progress, "Console", lambda stderr: Screen(False, stderr))
    with progress.reporting(plan, "bar", "1 × cpu"):
        pass
    assert len(cell.shown) == 2 and capsys.readouterr() == ("", "")
    with progress.reporting(plan, "text", "1 × cpu"):
        pass
    assert len(cell.shown) == 2 and "done after" in capsys.readouterr().err


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
    assert sorted(line["event"] for line in told[2:-1]) == [*["chunk"] * 2, *["compiled"] * 2, *["group"] * 2]
    assert [told[place]["event"] for place in (0, 1, -1)] == ["start", "found", "end"]
    assert (told[1]["runs"], told[1]["left"], told[-1]["finished"]) == (6, 2, 2)


class Cell:
    """The output of a notebook's cell, and a clock."""

    def __init__(self):
        self.clock, self.shown = Clock(), []

    def display(self, html, display_id):
        assert display_id is True  # else there is no handle to update
        self.update(html)
        return self

    def update(self, html):
        self.shown.append((self.clock.now - Clock.now, html.data))


@pytest.fixture
def cell(monkeypatch):
    pytest.importorskip("IPython")
    cell = Cell()
    monkeypatch.setattr("IPython.display.display", cell.display)
    monkeypatch.setattr(progress.time, "monotonic", cell.clock)
    return cell


def test_the_bar_of_a_notebooks_cell_shows_the_part_that_is_played(plan, cell):
    with progress._cell(plan) as advance:
        for second, more in ((10, 250), (20, 340), (20, 10), (25, 80)):
            cell.clock.now = Clock.now + second
            advance(more)
    assert [re.sub("<[^>]*>", "", html) for _, html in cell.shown] == [
        "0/6 runs  0%, starting, 0 s",
        "2/6 runs  42%, 25 rounds/s, 10 s",
        "5/6 runs  98%, 30 rounds/s, 20 s",
        "6/6 runs  100%, 27 rounds/s, 25 s",
        "6/6 runs  100%, 27 rounds/s, 25 s",
    ]
    assert [re.search(r'value="([\d.]+)"', html)[1] for _, html in cell.shown] == [
        *("0.000", "0.417", "0.983", "1.000", "1.000")
    ]


@pytest.mark.parametrize(("second", "played", "pace"), [(5, 0, "starting, 5 s"), (0, 1, "starting, 0 s")])
def test_a_cell_has_no_speed_before_anything_is_played_or_any_time_has_passed(cell, second, played, pace):
    with progress._cell(make_plan(parse(ENSEMBLE))) as advance:
        cell.clock.now = Clock.now + second
        advance(played)
    assert re.sub("<[^>]*>", "", cell.shown[-1][1]) == f"{played}/2 runs  {50 * played}%, {pace}"


def test_a_notebooks_cell_is_drawn_anew_now_and_then_alone(plan, cell):
    with progress._cell(plan) as advance:
        for step in range(1, 11):
            cell.clock.now = Clock.now + 0.4 * step * progress._SECONDS_BETWEEN_FRAMES
            advance(1)
    assert len(cell.shown) == 1 + 3 + 1  # the beginning, every third step, and the end


@pytest.mark.parametrize(
    ("study", "played", "shown"),
    [
        (STUDY, [], r"0/6 runs \S+ +0 % starting"),
        (STUDY, [250], r"2/6 runs \S+ +42 % starting"),
        (STUDY, [100, 200], r"3/6 runs \S+ +50 % 20 rounds/s 0:00:15"),
        (STUDY, [100, 500], r"6/6 runs \S+ +100 % 50 rounds/s 0:00:00"),
        (ENSEMBLE, [1], r"1/2 runs \S+ +50 % starting"),
    ],
)
def test_the_bar_of_a_terminal_goes_on_with_the_rounds(monkeypatch, study, played, shown):
    screen, clock = io.StringIO(), Clock()
    console = rich.console.Console(file=screen, force_terminal=True, width=100, get_time=clock)
    monkeypatch.setattr(progress, "Console", lambda stderr: console)
    with progress._bar(make_plan(parse(study))) as advance:
        for rounds in played:
            clock.now += 10
            advance(rounds)
    last = (
        re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", screen.getvalue()).strip().splitlines()[-1].rpartition("\r")[2]
    )
    assert re.match(shown, last), last
