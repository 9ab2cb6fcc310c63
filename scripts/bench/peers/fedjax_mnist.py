"""Runs FedAvg in FedJAX: `fedjax_mnist.py DATA.npz ROUNDS`."""

import json
import sys
import time

import fedjax
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

work, rounds = np.load(sys.argv[1]), int(sys.argv[2])
x, y, test_x, test_y = (work[name] for name in ("x", "y", "test_x", "test_y"))


def forward(batch):
    return hk.nets.MLP([32, 16, 10])(batch["x"])


model = fedjax.create_model_from_haiku(
    hk.transform(forward),
    sample_batch={"x": x[:1], "y": y[:1]},
    train_loss=lambda batch, outputs: fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], outputs),
)
owned = {
    b"%02d" % client: {"x": x[work["owner"] == client], "y": y[work["owner"] == client]}
    for client in range(30)
}
algorithm = fedjax.algorithms.fed_avg.federated_averaging(
    fedjax.model_grad(model),
    fedjax.optimizers.sgd(0.1),
    fedjax.optimizers.sgd(1.0),
    fedjax.ShuffleRepeatBatchHParams(batch_size=20, num_epochs=1, drop_remainder=False, seed=0),
)
fedjax.set_for_each_client_backend("jit")
sampler = fedjax.client_samplers.UniformGetClientSampler(fedjax.InMemoryFederatedData(owned), 5, seed=0)


@jax.jit
def right(params):
    outputs = model.apply_for_eval(params, {"x": jnp.asarray(test_x)})
    return jnp.mean(jnp.argmax(outputs, -1) == test_y)


state = algorithm.init(model.init(jax.random.PRNGKey(0)))
accuracy, begun = [], 0.0
for turn in range(1, rounds + 1):
    sampler.set_round_num(turn)
    state, _ = algorithm.apply(state, sampler.sample())
    if turn % 10 == 0:
        accuracy.append(float(right(state.params)))
    if turn == 20:
        jax.block_until_ready(state.params)
        begun = time.process_time()
jax.block_until_ready(state.params)
print(json.dumps({"rounds": rounds - 20, "cpu_seconds": time.process_time() - begun, "accuracy": accuracy}))
