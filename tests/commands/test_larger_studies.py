"""A larger study ends in the folder of a smaller one while this ends, is read or is drawn."""

import pytest

import pausejax
from pausejax import api, page
from pausejax.commands import main as cli
from pausejax.execution import play as playing
from pausejax.results import exchange

SPEC = """
mode = "bandit"
rounds = 5
seeds = {}
[network]
num_clients = 4
clients_per_round = 2
[[policy]]
name = "random"
"""


def test_simulate_returns_no_other_runs_than_those_that_were_asked_for(tmp_path, monkeypatch):
    def play(*given, **named):
        outcome = playing.play(*given, **named)
        monkeypatch.undo()
        pausejax.simulate(["random", "fastest"], seeds=3, **study)
        return outcome

    study = {"mode": "bandit", "rounds": 5, "num_clients": 4, "clients_per_round": 2, "out": tmp_path}
    monkeypatch.setattr(api, "play", play)
    with pytest.raises(OSError, match="another process has ended another study in this folder"):
        pausejax.simulate("random", seeds=2, **study)
    assert pausejax.open(tmp_path).sizes["run"] == 6
    assert pausejax.simulate("random", seeds=2, **{**study, "out": tmp_path / "alone"}).sizes["run"] == 2


@pytest.mark.parametrize("other", [{"seeds": [1, 0]}, {"policies": [{"name": "random", "label": "theirs"}]}])
def test_simulate_returns_the_order_and_the_labels_that_were_asked_for(tmp_path, monkeypatch, other):
    def play(*given, **named):
        outcome = playing.play(*given, **named)
        monkeypatch.undo()
        pausejax.simulate(**study | other)
        return outcome

    study = {"policies": "random", "seeds": [0, 1], "mode": "bandit", "rounds": 5, "num_clients": 4}
    study |= {"clients_per_round": 2, "out": tmp_path}
    monkeypatch.setattr(api, "play", play)
    with pytest.raises(OSError, match="another process has ended another study in this folder"):
        pausejax.simulate(**study)
    assert pausejax.simulate(**study)["seed"].values.tolist() == [0, 1]


@pytest.mark.slow
def test_the_last_page_is_that_of_the_larger_study(tmp_path, monkeypatch, capsys):
    spec, larger, out = tmp_path / "spec.toml", tmp_path / "larger.toml", tmp_path / "out"
    spec.write_text(SPEC.format(2))
    larger.write_text(SPEC.format(4))
    build, shown = page.build, []

    def built(result, *given, **named):
        shown.append(result.sizes["run"])
        text = build(result, *given, **named)
        if len(shown) == 1:
            run = ["run", str(larger), "--out", str(out), "--quiet", "--no-report"]
            assert cli.main(run) == cli.OK
        return text

    monkeypatch.setattr(page, "build", built)
    assert cli.main(["run", str(spec), "--out", str(out)]) == cli.OK
    assert shown == [2, 4] and "4, of 1 policy" in (out / "report.html").read_text()
    said = capsys.readouterr().out
    assert said.count("the page with all charts") == 1 and "over 2 seeds" in said and "2 runs in" in said


def test_a_table_has_no_runs_of_another_study(tmp_path, monkeypatch, capsys):
    """The larger study has a second label for the same runs."""
    spec, larger, out = tmp_path / "spec.toml", tmp_path / "larger.toml", tmp_path / "out"
    spec.write_text(SPEC.format(2))
    larger.write_text(SPEC.format(2) + '[[policy]]\nname = "random"\nlabel = "again"\n')

    def play(*given, **named):
        outcome = played(*given, **named)
        monkeypatch.undo()
        assert cli.main(["run", str(larger), "--out", str(out), "--quiet", "--no-report"]) == cli.OK
        return outcome

    played = playing.play
    monkeypatch.setattr(playing, "play", play)
    assert cli.main(["run", str(spec), "--out", str(out), "--no-report"]) == cli.OK
    said = capsys.readouterr().out
    assert "no table: another process has ended another study" in said and "again" not in said


def test_a_result_that_is_always_replaced_is_one_error(tmp_path, monkeypatch):
    versions = iter(range(100))
    monkeypatch.setattr(exchange, "version", lambda folder: str(next(versions)))
    with pytest.raises(OSError, match=r"other processes are extending results\.zarr. Open it again later"):
        exchange.settled(tmp_path, lambda: 1)

    def replaced():
        raise exchange.Replaced("replaced")

    monkeypatch.setattr(exchange, "version", lambda folder: "one")
    with pytest.raises(OSError, match="other processes are extending"):
        exchange.settled(tmp_path, replaced)
    assert exchange.settled(tmp_path, lambda: 2) == 2


def test_a_table_of_a_result_under_a_url_needs_a_file(capsys):
    pausejax.simulate(
        "random", mode="bandit", rounds=2, num_clients=4, clients_per_round=2, out="memory://table"
    )
    assert cli.main(["export", "memory://table"]) == cli.BAD_SPEC
    assert "--out: must name a file on this machine, because" in capsys.readouterr().err
