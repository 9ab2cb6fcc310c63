"""Products in every precision, against float64 on operands rounded by hand, wherever they stand."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from pausejax.data.host import DataCache
from pausejax.federated.precision import PRECISIONS, in_precision
from pausejax.kinds import parse
from pausejax.study.plan import make_plan

BITS = {"highest": 23, "tf32": 10, "bf16": 7}


def to_bits(x, bits):
    """Rounds to so many bits after the leading one, ties to even, in float64."""
    x = np.asarray(x, np.float64)
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.round(mantissa * 2.0 ** (bits + 1)), exponent - bits - 1)


def product(left, right):
    return left @ right


def in_a_scan(left, right):
    return lax.scan(lambda total, row: (total, row @ right), 0.0, left)[1]


def in_a_choice(left, right):
    return lax.cond(jnp.sum(left) > -jnp.inf, product, lambda left, right: 0 * (left @ right), left, right)


def in_a_checkpoint(left, right):
    return jax.checkpoint(product)(left, right)


def in_a_checkpoint_of_a_scan(left, right):
    return jax.checkpoint(in_a_scan)(left, right)


def in_a_scan_of_a_checkpoint(left, right):
    return lax.scan(lambda total, row: (total, in_a_checkpoint(row, right)), 0.0, left)[1]


def in_a_function(left, right):
    return jax.jit(product)(left, right)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    "multiply",
    [
        *(product, in_a_scan, in_a_choice, in_a_function),
        *(in_a_checkpoint, in_a_checkpoint_of_a_scan, in_a_scan_of_a_checkpoint),
    ],
)
def test_operands_are_rounded_and_sums_are_not(multiply, precision):
    rng, bits = np.random.default_rng(0), BITS[precision]
    left, right = (rng.normal(size=shape).astype(np.float32) for shape in ((5, 40), (40, 3)))
    rounding = in_precision(multiply, precision)
    found = jax.jit(rounding)(left, right)
    np.testing.assert_allclose(found, to_bits(left, bits) @ to_bits(right, bits), rtol=1e-5, atol=1e-5)
    together = jax.jit(jax.vmap(rounding, (0, None)))(np.stack([left, 2 * left]), right)
    np.testing.assert_allclose(together[1], 2 * found, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("multiply", [product, in_a_scan, in_a_checkpoint, in_a_scan_of_a_checkpoint])
def test_gradients_multiply_rounded_operands_too(multiply, precision):
    rng, bits = np.random.default_rng(1), BITS[precision]
    left, right, weight = (rng.normal(size=shape).astype(np.float32) for shape in ((5, 40), (40, 3), (5, 3)))

    def weighted(left, right):
        return jnp.sum(weight * in_precision(multiply, precision)(left, right))

    by_left, by_right = jax.jit(jax.grad(weighted, (0, 1)))(left, right)
    left, right, weight = (to_bits(x, bits) for x in (left, right, weight))
    np.testing.assert_allclose(by_left, weight @ right.T, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(by_right, left.T @ weight, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_convolutions_are_products(precision):
    rng, bits = np.random.default_rng(2), BITS[precision]
    images, kernel = (rng.normal(size=shape).astype(np.float32) for shape in ((2, 5, 5, 3), (2, 2, 3, 4)))

    def convolve(images, kernel):
        numbers = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(images, kernel, (1, 1), "VALID", dimension_numbers=numbers)

    found = in_precision(convolve, precision)(images, kernel)
    images, kernel = to_bits(images, bits), to_bits(kernel, bits)
    expected = np.zeros((2, 4, 4, 4))
    for row in range(2):
        for column in range(2):
            expected += images[:, row : row + 4, column : column + 4] @ kernel[row, column]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_keywords_constants_and_integers_pass_through():
    rng = np.random.default_rng(3)
    left, right = (rng.normal(size=shape).astype(np.float32) for shape in ((2, 5), (5, 3)))
    whole = np.arange(6).reshape(2, 3)
    constant = jnp.asarray(right)

    def several(left, *, turned, whole):
        product = left @ constant
        return {"real": product.T if turned else product, "whole": whole @ whole.T}

    found = in_precision(several, "bf16")(jnp.asarray(left), turned=True, whole=jnp.asarray(whole))
    np.testing.assert_allclose(found["real"], (to_bits(left, 7) @ to_bits(right, 7)).T, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(found["whole"], whole @ whole.T)
    exact = in_precision(several, "highest")(jnp.asarray(left), turned=False, whole=jnp.asarray(whole))
    np.testing.assert_allclose(exact["real"], left @ right, rtol=1e-5, atol=1e-5)
    scaled = in_precision(lambda whole, by: whole @ by, "bf16")(
        jnp.asarray(whole), jnp.asarray([[1], [0], [2]])
    )
    np.testing.assert_array_equal(scaled, [[4], [13]])


def test_a_linear_system_is_solved():
    """Its operation holds functions in a named tuple, and no product of its own."""
    matrix, right = jnp.eye(3) * 2, jnp.ones((3, 1))
    np.testing.assert_allclose(in_precision(jnp.linalg.solve, "bf16")(matrix, right), right / 2)


def test_products_that_cannot_be_rounded_are_refused():
    mesh = jax.make_mesh((1,), ("axis",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = jax.sharding.PartitionSpec("axis")
    parallel = jax.shard_map(product, mesh=mesh, in_specs=(rows, None), out_specs=rows)
    left, right = jnp.ones((2, 3)), jnp.ones((3, 2))
    with pytest.raises(ValueError, match='precision = "bf16": the products of a shard_map can\'t be rounded'):
        in_precision(parallel, "bf16")(left, right)
    assert (in_precision(parallel, "highest")(left, right) == 3).all()


def test_a_function_that_keeps_its_own_derivative_keeps_it():
    """ReLU at 0 has the derivative that its library gives it."""
    relu = in_precision(lambda x: jax.nn.relu(x @ jnp.ones((1, 1))), "bf16")
    assert jax.grad(lambda x: jnp.sum(relu(x)))(jnp.zeros((1, 1))) == 0.0


def lowered(**training):
    document = {
        "rounds": 2,
        "seeds": 1,
        "training": {"max_steps": 1, **training},
        "data": {"train_samples": 600},
        "policy": [{"name": "fedavg"}],
    }
    plan = make_plan(parse(document))
    return plan.study.kind.simulation(plan.study, plan.groups[0], DataCache()).lower(1).as_text()


@pytest.mark.slow
def test_no_product_of_a_study_is_left_to_the_device():
    """At "highest" every one says so; a GPU would multiply the others as TF32."""
    products = re.findall(r"stablehlo\.(?:dot_general|convolution)[^\n]*", lowered())
    assert products and all(line.count("HIGHEST") == 2 for line in products)


@pytest.mark.slow
def test_precision_is_a_parameter_that_shapes_the_program():
    base = {"rounds": 2, "policy": [{"name": "random"}]}
    plan = make_plan(parse({**base, "training": {"precision": ["highest", "bf16"]}}))
    assert len(plan.groups) == 2
    assert "HIGHEST" not in lowered(precision="bf16")
    with pytest.raises(ValueError, match="precision"):
        parse({**base, "training": {"precision": "float16"}})
