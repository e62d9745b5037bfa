"""Networks against dense products in NumPy, and what their initial weights are drawn from."""

import itertools
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
import plain
import pytest
from scipy import stats

from vbe import bonuses, networks
from vbe.agents import double_dqn
from vbe.bonuses.vbe import settled
from vbe.networks import Layer
from vbe.types import Array, Key, Network, Params, Transition

FEATURES, OUTPUTS, BATCH = 6, 4, 5
DENSE = gymnasium.spaces.Box(-1, 1, (FEATURES,))
INDEXED = gymnasium.spaces.MultiDiscrete([FEATURES] * 3)
HIDDEN = [(), (7,), (7, 5)]

shapes = pytest.mark.parametrize("hidden", HIDDEN, ids=str)
biases = pytest.mark.parametrize("bias", [True, False])


def dense_observations() -> Array:
    return jax.random.normal(jax.random.key(1), (BATCH, FEATURES))


def indexed_observations() -> Array:
    # The last tells features that are active twice, as tilings may share one.
    return jnp.concatenate([jax.random.randint(jax.random.key(1), (BATCH - 1, 3), 0, FEATURES), jnp.array([[2, 5, 2]])])


@shapes
@biases
def test_values_are_those_of_dense_products(hidden: tuple[int, ...], bias: bool) -> None:
    network, x = networks.mlp(DENSE, OUTPUTS, hidden, bias=bias), dense_observations()
    params = network.init(jax.random.key(0), x[0])
    expected = plain.values(plain.layers(params), np.asarray(x))
    np.testing.assert_allclose(network.apply(params, x), expected, rtol=1e-5, atol=1e-6)
    for one, row in zip(x, expected, strict=True):
        assert network.apply(params, one).shape == (OUTPUTS,)
        np.testing.assert_allclose(network.apply(params, one), row, rtol=1e-5, atol=1e-6)


@shapes
@biases
def test_indices_stand_for_scaled_one_hot_vectors(hidden: tuple[int, ...], bias: bool) -> None:
    network, x = networks.mlp(INDEXED, OUTPUTS, hidden, bias=bias), indexed_observations()
    vectors = plain.dense(np.asarray(x), FEATURES).astype(np.float32)
    assert vectors[-1, 2] == pytest.approx(2 / 3)
    params = network.init(jax.random.key(0), x[0])
    expected = plain.values(plain.layers(params, indexed=True), vectors)
    np.testing.assert_allclose(network.apply(params, x), expected, rtol=1e-5, atol=1e-6)
    for one, row in zip(x, expected, strict=True):
        np.testing.assert_allclose(network.apply(params, one), row, rtol=1e-5, atol=1e-6)

    # The same parameters over the same vectors: values and gradients agree.
    def loss(params: Params, x: Array) -> Array:
        return jnp.sum(jnp.sin(network.apply(params, x)))

    def turned(params: Params) -> Params:
        return (params[0]._replace(weights=params[0].weights.T), *params[1:])

    by_index, by_vector = jax.grad(loss)(params, x), turned(jax.grad(loss)(turned(params), jnp.array(vectors)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), by_index, by_vector)


def test_linear_functions_have_one_layer() -> None:
    network = networks.linear(DENSE, OUTPUTS, bias=False)
    (layer,) = network.init(jax.random.key(0), jnp.zeros(FEATURES))
    assert layer.weights.shape == (OUTPUTS, FEATURES)
    assert layer.bias is None
    (layer,) = networks.linear(DENSE, OUTPUTS).init(jax.random.key(0), jnp.zeros(FEATURES))
    assert layer.bias.shape == (OUTPUTS,)


@pytest.mark.parametrize(("space", "inputs"), [(DENSE, 6), (INDEXED, 6), (gymnasium.spaces.Box(0, 1, ()), 1)], ids=str)
def test_a_space_says_how_many_inputs_there_are(space: gymnasium.Space, inputs: int) -> None:
    assert networks.num_features(space) == inputs


def test_weights_and_biases_are_uniform_within_one_over_the_root_of_the_inputs() -> None:
    sizes = (100, 300, 40)
    params = networks.mlp(gymnasium.spaces.Box(-1, 1, (100,)), 40, (300,)).init(jax.random.key(0), jnp.zeros(100))
    for layer, (inputs, outputs) in zip(params, itertools.pairwise(sizes), strict=True):
        bound = inputs**-0.5
        assert layer.weights.shape == (outputs, inputs)
        assert layer.bias.shape == (outputs,)
        for x in layer:
            assert float(jnp.abs(x).max()) <= bound
            assert stats.kstest(np.asarray(x).ravel(), stats.uniform(-bound, 2 * bound).cdf).pvalue > 1e-3
    # No two rows, columns, layers or biases share their draws.
    assert len(np.unique(np.concatenate([np.asarray(x).ravel() for x in jax.tree.leaves(params)]))) > 0.99 * (100 * 300 + 300 * 40 + 340)


def test_truncated_normals_have_their_standard_deviation_before_the_cut() -> None:
    network = networks.linear(gymnasium.spaces.Box(-1, 1, (100,)), 300, initializer=networks.truncated_normal)
    (layer,) = network.init(jax.random.key(0), jnp.zeros(100))
    weights = np.asarray(layer.weights).ravel()
    assert np.abs(weights).max() <= 0.2
    assert stats.kstest(weights, stats.truncnorm(-2, 2, scale=0.1).cdf).pvalue > 1e-3
    np.testing.assert_array_equal(layer.bias, 0)


@pytest.mark.parametrize("space", [DENSE, INDEXED], ids=["dense", "indexed"])
def test_an_ensembles_members_are_independent_copies(space: gymnasium.Space) -> None:
    network, x = networks.mlp(space, OUTPUTS, (7,)), dense_observations() if space is DENSE else indexed_observations()
    members = networks.ensemble(network, 3)
    params = members.init(jax.random.key(0), x[0])
    together = members.apply(params, x)
    assert together.shape == (3, BATCH, OUTPUTS)
    assert members.apply(params, x[0]).shape == (3, OUTPUTS)
    for i in range(3):
        alone = jax.tree.map(lambda leaf, i=i: leaf[i], params)
        np.testing.assert_allclose(together[i], network.apply(alone, x), rtol=1e-5, atol=1e-6)
    for leaf in jax.tree.leaves(params):
        flat = np.asarray(leaf).reshape(3, -1)
        assert len(np.unique(flat)) == flat.size
    # A member's output depends on its own parameters only.
    other = jax.tree.map(lambda leaf: leaf.at[1].add(1.0), params)
    unmoved = [np.array_equal(a, b) for a, b in zip(members.apply(other, x), together, strict=True)]
    assert unmoved == [True, False, True]


def test_per_example_lifts_a_function_of_one_observation() -> None:
    def apply(params: Array, image: Array) -> Array:
        assert image.shape == (2, 3)
        return params * image.sum(0)

    network = networks.per_example(lambda key, x: jax.random.normal(key, (3,)), apply, ndim=2)
    images = jax.random.normal(jax.random.key(0), (BATCH, 2, 3))
    params = network.init(jax.random.key(1), images[0])
    expected = np.asarray(params) * np.asarray(images).sum(1)
    np.testing.assert_allclose(network.apply(params, images), expected, rtol=1e-6)
    np.testing.assert_allclose(network.apply(params, images[0]), expected[0], rtol=1e-6)


def test_a_flax_style_module_is_a_network() -> None:
    """Its variables are a dictionary of dictionaries, `init` and `apply` bound methods; everything runs on it as on our own."""
    own = networks.mlp(DENSE, OUTPUTS, (7,))

    class Module:
        def init(self, rngs: Key, x: Array) -> dict[str, Any]:
            layers = own.init(rngs, x)
            return {"params": {f"Dense_{i}": {"kernel": layer.weights.T, "bias": layer.bias} for i, layer in enumerate(layers)}}

        def apply(self, variables: dict[str, Any], x: Array) -> Array:
            for i in range(2):
                layer = variables["params"][f"Dense_{i}"]
                x = jnp.einsum("...i,io->...o", jax.nn.relu(x) if i else x, layer["kernel"])
                x += jnp.broadcast_to(layer["bias"], x.shape)
            return x

    def layers(tree: Any) -> Any:
        """The library's shape of parameters, with whatever axes in front."""
        params = tree["params"]
        return tuple(Layer(params[f"Dense_{i}"]["kernel"].swapaxes(-1, -2), params[f"Dense_{i}"]["bias"]) for i in range(2))

    module, x = Module(), dense_observations()
    results = []
    for network in own, Network(module.init, module.apply):
        agent = double_dqn(network, bonuses.vbe(network, optax.adam(0.01), ensemble_size=3), optax.adam(0.01))
        state = agent.init(jax.random.key(0), x[0])
        action = jnp.array([0, 1, 2, 3, 0])
        learn = jax.jit(agent.learn)
        for time in range(3):
            batch = Transition(x, action, x[:, 0], jnp.full(BATCH, 0.9), x[::-1])
            state, loss = learn(state, jax.random.key(time), batch)
        taken, bonus = agent.act(state, jax.random.key(0), x[0])
        results.append((state, loss, taken, bonus))
    (state, *said), (other, *other_said) = results
    as_ours = (layers(other.online), layers(settled(other.bonus).predictor))
    ours = (state.online, settled(state.bonus).predictor)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), as_ours, ours)
    np.testing.assert_allclose(other_said, said, rtol=1e-4)
