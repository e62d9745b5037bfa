"""What networks and Adam compute, said plainly in NumPy and double precision, to test against.

Written from the mathematics alone: forward and backward passes by hand, one example and one layer after another.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

Layers = list[tuple[np.ndarray, np.ndarray | None]]  # weights (inputs, outputs), bias (outputs,)


def layers(params: Any, *, indexed: bool = False) -> Layers:
    """Copies the library's parameters, whose weights are (outputs, inputs) but for a first layer over indices."""
    return [
        (np.array(w if indexed and not depth else w.T, np.float64), None if b is None else np.array(b, np.float64))
        for depth, (w, b) in enumerate(params)
    ]


def member(tree: Any, i: int) -> Any:
    return jax.tree.map(lambda x: np.asarray(x)[i], tree)


def dense(indices: np.ndarray, num_features: int) -> np.ndarray:
    """Indices of active features (B, active) -> the vectors that they stand for (B, num_features)."""
    vectors = np.zeros((len(indices), num_features))
    for vector, active in zip(vectors, indices, strict=True):
        for index in active:
            vector[index] += 1 / len(active)
    return vectors


def forward(network: Layers, observations: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Values (B, outputs), and what went into each layer."""
    x = np.asarray(observations, np.float64)
    inputs = []
    for depth, (weights, bias) in enumerate(network):
        if depth:
            x = np.maximum(x, 0)
        inputs.append(x)
        x = x @ weights if bias is None else x @ weights + bias
    return x, inputs


def values(network: Layers, observations: np.ndarray) -> np.ndarray:
    return forward(network, observations)[0]


def loss_and_gradient(network: Layers, observations: np.ndarray, actions: np.ndarray, targets: np.ndarray) -> tuple[float, Layers]:
    """The mean squared error of the values of `actions`, and what back-propagation makes of it."""
    outputs, inputs = forward(network, observations)
    batch = len(actions)
    errors = np.array([outputs[n, actions[n]] - targets[n] for n in range(batch)])
    signal = np.zeros_like(outputs)
    for n in range(batch):
        signal[n, actions[n]] = 2 * errors[n] / batch
    return float(np.mean(errors**2)), backward(network, inputs, signal)


def backward(network: Layers, inputs: list[np.ndarray], signal: np.ndarray) -> Layers:
    """From the gradient with respect to outputs (B, outputs) to that with respect to weights and biases."""
    gradient: Layers = []
    for (weights, bias), x in zip(reversed(network), reversed(inputs), strict=True):
        gradient.insert(0, (x.T @ signal, None if bias is None else signal.sum(0)))
        signal = (signal @ weights.T) * (x > 0)
    return gradient


class Adam:
    """One network's optimiser."""

    def __init__(self, network: Layers, learning_rate: float):
        self.learning_rate = learning_rate
        self.count = 0
        self.mean = [[0.0 if x is None else np.zeros_like(x) for x in layer] for layer in network]
        self.square = [[0.0 if x is None else np.zeros_like(x) for x in layer] for layer in network]

    def step(self, network: Layers, gradient: Layers) -> Layers:
        self.count += 1
        stepped = []
        for depth, (layer, slopes) in enumerate(zip(network, gradient, strict=True)):
            parts: list[np.ndarray | None] = []
            for part, (x, g) in enumerate(zip(layer, slopes, strict=True)):
                if x is None or g is None:
                    parts.append(None)
                    continue
                self.mean[depth][part] = m = 0.9 * self.mean[depth][part] + 0.1 * g
                self.square[depth][part] = v = 0.999 * self.square[depth][part] + 0.001 * g**2
                unbiased_m, unbiased_v = m / (1 - 0.9**self.count), v / (1 - 0.999**self.count)
                parts.append(x - self.learning_rate * unbiased_m / (np.sqrt(unbiased_v) + 1e-8))
            stepped.append((parts[0], parts[1]))
        return stepped  # type: ignore[return-value]


def assert_same(network: Any, params: Any, *, indexed: bool = False, rtol: float = 1e-4, atol: float = 2e-5) -> None:
    """That the library's parameters, or anything of their shape, are these."""
    for (weights, bias), (its_weights, its_bias) in zip(network, layers(params, indexed=indexed), strict=True):
        np.testing.assert_allclose(its_weights, weights, rtol=rtol, atol=atol)
        if its_bias is not None:
            np.testing.assert_allclose(its_bias, bias, rtol=rtol, atol=atol)


def assert_same_moments(adam: Adam, optimizer_state: Sequence[Any], *, indexed: bool = False) -> None:
    """That optax's state of Adam is this one."""
    state = optimizer_state[0]
    assert int(state.count) == adam.count
    assert_same(adam.mean, state.mu, indexed=indexed, atol=1e-6)
    assert_same(adam.square, state.nu, indexed=indexed, atol=1e-8)
