"""A notebook's kernel as its user meets it: a bar, an interrupt, the same call again, errors of one line."""

import time

import pytest
from jupyter_client.manager import start_new_kernel

pytestmark = pytest.mark.slow

PATIENCE = 120
SLOW = """
import time
import jax, jax.numpy as jnp, numpy as np
import pausejax

def _wait(round):
    time.sleep(0.05)
    return np.zeros(np.shape(round), np.float32)

@pausejax.quantity
def slow(seen):
    number = jax.ShapeDtypeStruct((), jnp.float32)
    return jax.pure_callback(_wait, number, seen.round, vmap_method="broadcast_all")
"""
CALL = "pausejax.simulate('random', mode='bandit', rounds={}, quantities=['slow'], out='kept', progress=True)"


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    manager, client = start_new_kernel(cwd=str(tmp_path_factory.mktemp("notebook")))
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def execute(kernel, code, interrupt_when=None):
    """What a cell leaves, as (kind of message, content); it is interrupted once it has shown something."""
    manager, client = kernel
    number, found, deadline = client.execute(code), [], time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        message = client.get_iopub_msg(timeout=PATIENCE)
        if message["parent_header"].get("msg_id") != number:
            continue
        kind, content = message["msg_type"], message["content"]
        if kind == "status" and content["execution_state"] == "idle":
            return found
        found.append((kind, content))
        if interrupt_when and interrupt_when in str(content):
            interrupt_when = manager.interrupt_kernel()
    raise AssertionError(found)


def shown(found):
    """The texts of a bar, one after the other."""
    bars = [content["data"] for kind, content in found if kind == "update_display_data"]
    return [data["text/html"] for data in bars]


def test_a_study_shows_a_bar_is_interrupted_and_goes_on(kernel):
    assert not [content for kind, content in execute(kernel, SLOW) if kind in ("error", "stream")]
    found = execute(kernel, CALL.format(300), interrupt_when="rounds/s")
    (error,) = (content for kind, content in found if kind == "error")
    assert error["traceback"] == [
        "Interrupted: kept keeps the finished and unfinished runs. The same call continues them"
    ]
    assert "compiling, 0 of 1 program ready" in shown(found)[0] and "stopped after" in shown(found)[-1]
    assert not [content for kind, content in found if kind == "stream"]
    lost = execute(kernel, CALL.format(300).replace("out='kept', ", ""), interrupt_when="rounds/s")
    (error,) = (content for kind, content in lost if kind == "error")
    assert error["traceback"] == [
        "Interrupted: no run was kept. Call simulate with out=DIR to keep finished runs"
    ]
    again = execute(
        kernel, "found = " + CALL.format(300) + "\nfound.sizes['round'], float(found.elapsed[0, -1])"
    )
    assert not [content for kind, content in again if kind == "error"]
    assert "done after" in shown(again)[-1] and "1 of 1 run finished" in shown(again)[-1]
    plain = "plain = pausejax.simulate('random', mode='bandit', rounds=300, quantities=['slow'])\n"
    same = execute(kernel, plain + "bool((plain.elapsed == found.elapsed).all())")
    assert [content["data"]["text/plain"] for kind, content in same if kind == "execute_result"] == ["True"]


def test_a_mistake_is_one_line(kernel):
    (error,) = (
        content for kind, content in execute(kernel, "pausejax.simulate(num_cleints=3)") if kind == "error"
    )
    assert error["traceback"] == [
        "SpecError: simulate: num_cleints: unknown key; did you mean 'num_clients'?"
    ]


def test_a_search_shows_a_bar_and_its_table(kernel):
    code = (
        "found = pausejax.search('pause', mode='bandit', rounds=20, trials=4, fresh_seeds=2, progress=True, "
    )
    found = execute(kernel, code + "gamma={'log_uniform': [1, 100]})\nfound")
    assert not [content for kind, content in found if kind in ("error", "stream")]
    assert "4 of 4 settings" in str(shown(found))
    (cell,) = (content["data"] for kind, content in found if kind == "execute_result")
    assert "<pre>" in cell["text/html"] and "best" in cell["text/plain"]
    texts = execute(kernel, "str(found) == repr(found) and 'best' in f'{found}'")
    assert [content["data"]["text/plain"] for kind, content in texts if kind == "execute_result"] == ["True"]


def test_completion_knows_parameters(kernel):
    _, client = kernel
    code = "pausejax.simulate('pause', num_cl"
    reply = client.complete(code, len(code), reply=True, timeout=PATIENCE)
    assert "num_clients=" in reply["content"]["matches"]
