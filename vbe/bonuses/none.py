"""No bonus at all: what an undirected agent has."""

import jax.numpy as jnp

from vbe.types import Bonus


def none(num_actions: int) -> Bonus:
    """The bonus that is zero everywhere. An agent that acts on it alone acts uniformly at random."""
    return Bonus(
        init=lambda key, observation: (),
        values=lambda state, observation: jnp.zeros((num_actions,)),
        update=lambda state, key, batch, next_action: (state, jnp.zeros(())),
        sync=lambda state: state,
    )


