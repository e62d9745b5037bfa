"""No bonus at all: what an undirected agent has."""

import jax.numpy as jnp

from vbe.types import Array, Bonus


def none(num_actions: int) -> Bonus:
    """The bonus that is zero everywhere. An agent that acts on it alone acts uniformly at random.

    Its state is empty, with as many axes as an observation: that tells one from a batch of them.
    """

    def values(state: Array, observation: Array) -> Array:
        return jnp.zeros((*observation.shape[: observation.ndim - state.ndim], num_actions))

    return Bonus(
        init=lambda key, observation: jnp.zeros((0,) * observation.ndim),
        values=values,
        update=lambda state, key, batch, next_action: (state, jnp.zeros(())),
        sync=lambda state: state,
    )
