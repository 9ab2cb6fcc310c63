"""Pictures are files that are there whole or not at all."""

import os
import resource

import numpy as np
import pytest

from pausejax.report import save, style
from pausejax.report.figure import Figure


@pytest.fixture(scope="module")
def figure():
    drawn = Figure(figsize=(3, 2))
    noise = np.random.default_rng(0).normal(size=3000)
    drawn.subplots().plot(noise)
    return drawn


@pytest.fixture
def full():
    """Makes a disk on which no file may be larger than so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("suffix", ["pdf", "png"])
def test_a_full_disk_is_one_error_whatever_was_being_written(figure, full, tmp_path, suffix):
    (path,) = save({"picture": figure}, tmp_path, (suffix,))
    whole = path.read_bytes()
    for size in np.linspace(0, len(whole) - 1, 8, dtype=int).tolist():
        full(size)
        with pytest.raises(OSError, match="too large"):
            save({"picture": figure}, tmp_path, (suffix,))
        assert path.read_bytes() == whole and os.listdir(tmp_path) == [path.name]


def test_lines_are_told_apart_without_colours():
    looks = [style.look(place) for place in range(56)]
    assert len({(look.dash, look.marker) for look in looks}) == 56
    assert len({look.dash for look in looks[:7]}) == 7


def test_names_of_files_are_of_the_programs_letters(tmp_path):
    labels = ["../../etc", "a b", "a_b", "A b", "$$$", "///", "α" * 300, "x" * 300, "a b"]
    names = style.file_names(labels)
    assert names[:6] == ["etc", "a_b", "a_b_2", "A_b_3", "_2", "_3"] and names[-1] == "a_b"
    assert all(len(name.encode()) <= 70 for name in names)
    with style.styled_context():
        figure = style.new_figure(1, 1)
    for name in ("../escaped", "a/b", "", ".hidden", "a\0b", "/etc/x", "a.b", "C:x"):
        with pytest.raises(ValueError, match="is no name of a picture"):
            style.save({"fine": figure, name: figure}, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_link_in_a_pictures_place_is_replaced_and_not_followed(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    out = tmp_path / "out"
    out.mkdir()
    (out / "picture.png").symlink_to(precious)
    with style.styled_context():
        style.save({"picture": style.new_figure(1, 1)}, out)
    assert precious.read_text() == "mine" and not (out / "picture.png").is_symlink()
    assert sorted(path.name for path in out.iterdir()) == ["picture.pdf", "picture.png"]
