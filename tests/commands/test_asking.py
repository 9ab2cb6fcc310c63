"""Every request for charts has a folder of its own."""

import pytest

from pausejax.commands.asking import within

LONG = "--measure pseudo_regret --where policy=alpha,policy=beta,policy=gamma"


@pytest.mark.parametrize(
    "requests",
    [
        ("--where total=-1", "--where total=1"),
        ("--where x=0.5", "--where x=0,5"),
        ("--where policy=a_b", "--where policy=a b", "--where policy=a-b"),
        (f"{LONG},policy=delta", f"{LONG},policy=epsilon"),
        ("--where word=", "--where word=[b]"),
        ("--where γ=1e-05", "--where γ=1e05"),
    ],
)
def test_no_two_requests_share_a_folder(tmp_path, requests):
    folders = {within(str(tmp_path), words) for words in requests}
    assert len(folders) == len(list(tmp_path.iterdir())) == len(requests)


def test_plain_requests_have_plain_names(tmp_path):
    found = within(str(tmp_path), "--measure pseudo_regret --where γ=5,policy=PAUSE --by policy")
    assert found == f"{tmp_path}/measure_pseudo_regret_where_γ_5_policy_PAUSE_by_policy"
