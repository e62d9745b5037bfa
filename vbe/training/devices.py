"""What JAX has to know before it starts: one device per CPU core, and a cache of compiled programs."""

import contextlib
import os
from pathlib import Path

import jax


def devices() -> list[jax.Device]:
    """All devices of JAX's default backend. If JAX has not started yet, a CPU counts as one device per core."""
    _configure()
    return jax.devices()


def _configure() -> None:
    if jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
        jax.config.update("jax_compilation_cache_dir", str(home / "vbe" / "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    if "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "") or jax.config.jax_num_cpu_devices > 0:  # type: ignore[attr-defined]
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(RuntimeError):  # JAX has started already: its devices are what they are
        jax.config.update("jax_num_cpu_devices", cores)
