"""A small study with labels that no page may believe."""

import pytest

import pausejax

HOSTILE = "<script>alert('x')</script> & \"quoted\" --> ]]>"
TITLE = "</title></script><img src=x onerror=alert(1)> & more"


@pytest.fixture(scope="session")
def study():
    """Two policies at two γ with three seeds, labelled by somebody who means harm."""
    return pausejax.simulate(
        ["pause", {"name": "random", "label": HOSTILE}],
        mode="bandit",
        rounds=40,
        seeds=3,
        num_clients=6,
        clients_per_round=2,
        gamma=[1.0, 5.0],
        name=TITLE,
    )
