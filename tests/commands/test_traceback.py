"""An error is one line; --traceback and PAUSEJAX_TRACEBACK show where it comes from."""

import errno
import os

import pytest

from pausejax.commands import main

LINE = "must be valid TOML"


@pytest.fixture
def damaged(tmp_path):
    (tmp_path / "spec.toml").write_text("rounds = [")
    return str(tmp_path / "spec.toml")


def errors_of(capsys, *arguments):
    assert main.main(arguments) == main.BAD_SPEC
    return capsys.readouterr().err


def test_one_line_stays_the_default(damaged, capsys, monkeypatch):
    for value in ("", "0"):
        monkeypatch.setenv("PAUSEJAX_TRACEBACK", value)
        assert errors_of(capsys, "plan", damaged).count("\n") == 1


def test_the_whole_chain_comes_before_the_line(damaged, capsys, monkeypatch):
    monkeypatch.delenv("PAUSEJAX_TRACEBACK", raising=False)
    line = errors_of(capsys, "plan", damaged)
    chain = errors_of(capsys, "plan", damaged, "--traceback")
    assert "TOMLDecodeError" in chain and "direct cause" in chain and chain.endswith(line)
    monkeypatch.setenv("PAUSEJAX_TRACEBACK", "1")
    assert "TOMLDecodeError" in errors_of(capsys, "plan", damaged)


def test_other_errors_show_theirs_too(tmp_path, capsys):
    (tmp_path / "results.zarr").write_text("")
    assert main.main(["report", str(tmp_path), "--traceback"]) == main.FAILED
    shown = capsys.readouterr().err
    assert shown.startswith("Traceback") and shown.splitlines()[-1].startswith("pausejax: ")


def test_names_of_others_stay_printable(damaged, capsys, monkeypatch):
    def fail(_):
        raise ValueError("\x1b[2J")

    monkeypatch.setattr("pausejax.study.document.read", fail)
    assert main.main(["plan", damaged, "--traceback"]) == main.FAILED
    shown = capsys.readouterr().err
    assert "\x1b" not in shown and "\\x1b[2J" in shown


def test_every_command_has_the_option(capsys):
    for command in ("run", "plan", "search", "report", "best", "export", "data", "parts"):
        with pytest.raises(SystemExit):
            main.main([command, "--help"])
        assert "--traceback" in capsys.readouterr().out, command


@pytest.mark.parametrize(
    ("number", "full"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EACCES, False)]
)
def test_a_full_disk_is_one_line_with_the_folder_and_a_remedy(tmp_path, monkeypatch, capsys, number, full):
    def fail(self, name, content):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("pausejax.results.folder.Folder.write", fail)
    spec = tmp_path / "spec.toml"
    spec.write_text('mode = "bandit"\nrounds = 2\n[[policy]]\nname = "random"\n')
    assert main.main(["run", str(spec), "--out", str(tmp_path / "out"), "--quiet"]) == main.FAILED
    (line,) = capsys.readouterr().err.splitlines()
    assert os.strerror(number) in line
    assert (f"{tmp_path / 'out'}: " in line and "Free some space" in line) == full
