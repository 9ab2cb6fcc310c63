"""Times implementations of convolutions in which each client has its own kernel.

    python scripts/bench/conv.py [--clients 5] [--batch 20] [--steps 3] [--repeats 3] [--only vmap/im2col ...]

Each variant trains the convolutional part of the CIFAR-10 network, forward and backward, inside a scan. The
clients are side by side (`vmap`) or one at a time (`lax.map`). The trained weights are an output, because
otherwise the compiler would drop the work. Prints milliseconds of a step of all clients, compile time and
temporary memory.
"""

import argparse
import functools
import time

import jax
import jax.numpy as jnp
from jax import lax

from pausejax.federated import layers

CHANNELS = (3, 32, 64, 128)
CLASSES = 10


def patches(images, kernel):
    """Convolves by a matrix product of patches, which a convolution with an identity kernel extracts."""
    height, width, _, features = kernel.shape
    columns = lax.conv_general_dilated_patches(
        images, (height, width), (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    # In the features of patches, channels are the outer axis.
    return columns @ kernel.transpose(2, 0, 1, 3).reshape(-1, features)


def shifts(images, kernel):
    """Convolves by the sum of one matrix product per kernel position, without patches in memory."""
    height, width = images.shape[1] - kernel.shape[0] + 1, images.shape[2] - kernel.shape[1] + 1
    return sum(
        images[:, row : row + height, column : column + width] @ kernel[row, column]
        for row in range(kernel.shape[0])
        for column in range(kernel.shape[1])
    )


CONVOLUTIONS = {
    "im2col": functools.partial(layers.conv, variant="im2col"),
    "lax": functools.partial(layers.conv, variant="lax"),
    "patches": patches,
    "shifts": shifts,
}
MAPS = {"vmap": jax.vmap, "map": lambda f: lambda *args: lax.map(lambda a: f(*a), args)}


def initial(key):
    keys = jax.random.split(key, len(CHANNELS))
    kernels = [
        jax.random.normal(k, (3, 3, c, d)) * (9 * c) ** -0.5
        for k, c, d in zip(keys, CHANNELS[:-1], CHANNELS[1:], strict=False)
    ]
    return [*kernels, jax.random.normal(keys[-1], (4 * CHANNELS[-1], CLASSES)) * 0.05]


def loss(convolve, weights, images, labels):
    for kernel in weights[:-1]:
        images = layers.max_pool(jax.nn.relu(convolve(images, kernel)))
    logits = images.reshape(images.shape[0], -1) @ weights[-1]
    return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(labels.shape[0]), labels])


def trainer(convolve, over_clients, steps):
    def client(weights, images, labels):
        gradient = jax.grad(functools.partial(loss, convolve))
        return jax.tree.map(lambda w, g: w - 0.01 * g, weights, gradient(weights, images, labels))

    def run(weights, images, labels):
        step = over_clients(client)
        return lax.scan(lambda w, _: (step(w, images, labels), None), weights, length=steps)[0]

    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for option, default in (("clients", 5), ("batch", 20), ("steps", 3), ("repeats", 3)):
        parser.add_argument(f"--{option}", type=int, default=default)
    names = [f"{over}/{name}" for over in MAPS for name in CONVOLUTIONS]
    parser.add_argument("--only", nargs="*", choices=names, default=names)
    args = parser.parse_args()

    keys = jax.random.split(jax.random.key(0), args.clients)
    weights = jax.vmap(initial)(keys)
    images = jax.random.normal(jax.random.key(1), (args.clients, args.batch, 32, 32, 3))
    labels = jax.random.randint(jax.random.key(2), (args.clients, args.batch), 0, CLASSES)
    device = jax.devices()[0]
    print(f"{device.platform} {device.device_kind}, jax {jax.__version__}, {vars(args)}")
    print(
        f"{'variant':<14}{'ms / step':>11}{'CPU ms / step':>15}{'compile s':>11}{'temp MB':>9}{'error':>10}"
    )
    expected = None
    for name in args.only:
        over, convolution = name.split("/")
        start = time.perf_counter()
        run = jax.jit(trainer(CONVOLUTIONS[convolution], MAPS[over], args.steps)).lower(
            weights, images, labels
        )
        compiled = run.compile()
        compile_time = time.perf_counter() - start
        result = jax.block_until_ready(compiled(weights, images, labels))
        wall, cpu = [], []
        for _ in range(args.repeats):
            start, start_cpu = time.perf_counter(), time.process_time()
            result = jax.block_until_ready(compiled(weights, images, labels))
            wall.append(time.perf_counter() - start)
            cpu.append(time.process_time() - start_cpu)
        expected = result if expected is None else expected
        error = max(float(jnp.abs(a - b).max()) for a, b in zip(result, expected, strict=True))
        memory = compiled.memory_analysis().temp_size_in_bytes / 1e6
        print(
            f"{name:<14}{1e3 * min(wall) / args.steps:>11.1f}{1e3 * min(cpu) / args.steps:>15.1f}"
            f"{compile_time:>11.1f}{memory:>9.0f}{error:>10.1e}",
            flush=True,
        )


if __name__ == "__main__":
    main()
