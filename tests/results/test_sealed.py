"""JSON that says something of a study is believed only with its digest."""

import contextlib
import json

import pytest

from pausejax.results import layouts, study_folder
from pausejax.results.folder import Folder
from pausejax.results.sealed import digest_of, read_sealed, write_sealed
from pausejax.study.simulation import Layout
from pausejax.study.spec import SpecError

from .studies import arrays_of, finish, make

CONTENT = {"files": [1.5, None, "é"], "answers": {"cpu": {"lanes": 4}}, "name": ""}


@pytest.fixture(params=["disk", "memory"])
def folder(request, tmp_path):
    made = Folder(tmp_path / "out" if request.param == "disk" else f"memory://{tmp_path.name}/out")
    yield made
    made.remove("")


def test_what_is_written_is_read_and_no_flipped_bit_is_believed(folder):
    write_sealed(folder, "a.json", CONTENT)
    assert list(read_sealed(folder, "a.json").items()) == list(CONTENT.items())
    whole = folder.read("a.json")
    for place in range(len(whole)):
        for bit in (1, 4, 32, 128):
            folder.write("a.json", whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
            with contextlib.suppress(ValueError):  # a flipped space between two words changes nothing
                assert read_sealed(folder, "a.json") == CONTENT


@pytest.mark.parametrize(
    "text", ["", "5", "[]", "{}", "[" * 5000, '{"content": 5}', '{"content": 5, "sha256": 5}', "\udcff"]
)
def test_what_is_not_sealed_is_damaged(tmp_path, text):
    (tmp_path / "a.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ValueError, match=r"a\.json: is damaged"):
        read_sealed(Folder(tmp_path), "a.json")


def test_a_file_that_is_not_there_is_no_damaged_one(folder):
    with pytest.raises(FileNotFoundError):
        read_sealed(folder, "a.json")


def sealed(content):
    return json.dumps({"content": content, "sha256": digest_of(content)})


@pytest.mark.parametrize(
    "text", ["5", "[5]", "\udcff", "[" * 5000, sealed(5), sealed([5]), sealed("word"), sealed({"a.py": 5})]
)
def test_digests_of_files_that_can_not_be_read_leave_the_difference_of_specs(tmp_path, text):
    finish(Folder(tmp_path), make(seeds=2))
    (tmp_path / "files.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(SpecError) as caught:
        study_folder.prepare(Folder(tmp_path), make(seeds=1))
    assert {"-seeds = 2", "+seeds = 1"} <= set(caught.value.problems)


def test_a_spec_that_is_no_text_is_another_one(tmp_path):
    finish(Folder(tmp_path), make(seeds=2))
    (tmp_path / "spec.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SpecError, match="holds runs of another spec"):
        study_folder.prepare(Folder(tmp_path), make(seeds=1))


def test_an_altered_layout_is_fixed_anew(tmp_path):
    folder = Folder(tmp_path)
    first, second = {"cpu": Layout(64, lanes=4)}, {"cpu": Layout(64, lanes=2)}
    table = layouts.Layouts(folder)
    assert table.setdefault(first) == table.setdefault(second) == first
    table.keep_fitted_width("cpu, 64", 9)
    table.keep_fitted_width("cpu, 64", 12)
    assert table.by_name() == first and table.fitted_widths() == {"cpu, 64": 9}
    text = (tmp_path / "layout.json").read_text()
    (tmp_path / "layout.json").write_text(text.replace("4", "8", 1))
    assert table.by_name() == table.fitted_widths() == {}
    assert table.setdefault(second) == table.by_name() == second


def test_how_runs_were_made_is_in_their_part_and_goes_with_it_into_the_result(tmp_path):
    import pausejax
    from pausejax.analysis.made import provenance_of

    folder, plan = Folder(tmp_path), make(seeds=2)
    records = [
        {"command": f"pausejax run {name}", "devices": "2 × cpu", "versions": {"jax": "1"}} for name in "ab"
    ]
    study_folder.prepare(folder, plan)
    for places, record in zip((range(1), range(1, 4)), records, strict=True):
        identities = [plan.identities[place] for place in places]
        study_folder.write_part(folder, identities, arrays_of(plan, places), record)
    assert all(name.endswith(".npz") for name in folder.names("parts"))
    study_folder.build_if_complete(folder, plan)
    assert provenance_of(pausejax.open(tmp_path)) == records
    finish(folder, make(seeds=3))
    assert provenance_of(pausejax.open(tmp_path)) == records
