"""The strict house in which all tests live: nothing is promoted silently, and there are two devices even on one core.

That warnings are errors is said in pyproject.toml, where pytest looks for it.
"""

import functools
import os
from pathlib import Path
from typing import Any

import hypothesis
import jax
import optax

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_num_cpu_devices", 2)

adam = optax.adam


@functools.wraps(adam)
def lenient_adam(*args: Any, **options: Any) -> optax.GradientTransformation:
    """optax itself mixes types (it raises floats to the power of an integer count), so its update is let off."""
    optimizer = adam(*args, **options)

    def update(gradient: Any, state: Any, params: Any = None) -> Any:
        with jax.numpy_dtype_promotion("standard"):
            return optimizer.update(gradient, state, params)

    return optax.GradientTransformation(optimizer.init, update)


optax.adam = lenient_adam

# Most of a first run's time is compilation, and the second run need not repeat it.
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "vbe" / "tests"
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)

# The first example of a test compiles. Examples are a function of the test alone: a commit's verdict does not change from day to day.
hypothesis.settings.register_profile("vbe", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("vbe")
