"""What a program comes to, against sums written down here."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from pausejax.execution.work import Work, work_of

TURNS = {"steps": 7.0, "seldom": 0.25}


def of(function, *shapes):
    arguments = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return work_of(jax.make_jaxpr(function)(*arguments).jaxpr, TURNS)


def test_products_and_convolutions_are_counted_in_flops():
    found = of(lambda a, b: a @ b, (3, 5), (5, 4))
    assert found == Work(1, 1, products=2 * 3 * 4 * 5)
    images, kernel = (2, 8, 8, 3), (3, 3, 3, 16)

    def convolve(images, kernel):
        return lax.conv_general_dilated(
            images, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    assert of(convolve, images, kernel) == Work(1, 1, convolutions=2 * (2 * 8 * 8 * 16) * (3 * 3 * 3))


def test_numbers_are_weighed_and_views_are_free():
    assert of(lambda x: x + x, (6, 2)) == Work(1, 1, 12)
    assert of(jnp.exp, (6,)) == Work(1, 1, 48)
    assert of(lambda x: lax.reshape(x, (12,)), (6, 2)) == Work(1)


def test_a_scan_goes_round_as_often_as_it_says():
    found = of(lambda x: lax.scan(lambda carry, _: (carry + x, None), x, None, length=5)[0], (4,))
    assert (found.operations, found.numbers) == (5, 20)


@pytest.mark.parametrize(("scope", "turns"), [("steps", 7), ("elsewhere", 4)])
def test_a_loop_goes_round_as_often_as_the_simulation_says(scope, turns):
    """The loops within it are not those that are spoken of."""

    def looped(x, end):
        def body(carry):
            x, k = carry
            return lax.while_loop(lambda y: y[0] < 1, lambda y: y * x, x), k + 1

        with jax.named_scope(scope):
            return lax.while_loop(lambda carry: carry[1] < end, body, (x, jnp.float32(0)))

    # A comparison, an addition, and four turns: an element, its comparison, and a product of eight numbers.
    assert of(looped, (8,), ()).numbers == turns * (4 * (1 + 1 + 8) + 2)


@pytest.mark.parametrize(("scope", "share"), [("seldom", 0.25), ("unknown", 0.0)])
def test_a_choice_is_made_as_often_as_the_simulation_says(scope, share):
    def choose(x, flag):
        with jax.named_scope(scope):
            return lax.cond(flag > 0, lambda x: jnp.exp(x), lambda x: x + x, x)

    plain, chosen = of(lambda x, flag: flag > 0, (8,), ()), of(choose, (8,), ())
    work = chosen.numbers - plain.numbers
    assert work == pytest.approx(8 * (1 - share) + 64 * share, abs=2)
    assert chosen.equations >= 3


def test_a_call_of_another_function_counts_what_is_in_it():
    assert of(jax.jit(lambda a, b: a @ b), (3, 5), (5, 4)).products == 120
