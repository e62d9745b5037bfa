"""Measures this library: steps per second of compiled chunks, time to the first one, and memory. One process, one measurement."""

import argparse
import itertools
import json
import resource
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from vbe.agents import AGENTS
from vbe.training import loop as off_policy
from vbe.training import on_policy
from vbe.training.devices import devices as all_devices
from vbe.training.spec import make_spec, programs

PEAK_SIDE = 1024  # of the square matrices whose product tells a machine's peak


def measure_training(
    *, environment: str, agent: str, options: dict[str, Any], lanes: int, devices: int | None, seconds: float
) -> dict[str, float]:
    """Trains: steps per second of all lanes together, warm-up and compilation left out."""
    used = all_devices()[:devices]
    started = time.perf_counter()
    spec = make_spec(environment=environment, agent=agent, agent_options=options, seeds=lanes, steps=1_000_000)
    (program,) = programs(spec)
    make_loop = on_policy.make_loop if AGENTS[agent].on_policy else off_policy.make_loop
    loop = make_loop(program, spec.steps, used)
    states, _ = loop.warm_up(loop.init())
    states, record = loop.chunk(states, loop.warm_up_steps)
    jax.block_until_ready(record)
    first = time.perf_counter() - started
    now, chunks, started = loop.warm_up_steps + loop.chunk_steps, 0, time.perf_counter()
    while not chunks or time.perf_counter() - started < seconds:
        states, record = loop.chunk(states, now)
        jax.block_until_ready(record)
        now, chunks = now + loop.chunk_steps, chunks + 1
    took = time.perf_counter() - started
    return {
        "steps_per_second": chunks * loop.chunk_steps * lanes / took,
        "first_chunk_seconds": first,
        "chunk_seconds": took / chunks,
        "group_size": loop.layout.size,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024),
    }


def measure_peak(seconds: float) -> dict[str, float]:
    """Multiplies square matrices in single precision on every device at once: floating-point operations per second."""
    used = all_devices()
    mesh = jax.make_mesh((len(used),), ("devices",), devices=used)
    matrices = jax.device_put(jnp.ones((len(used), PEAK_SIDE, PEAK_SIDE)), NamedSharding(mesh, PartitionSpec("devices")))
    multiply = jax.jit(lambda a: a @ a)
    jax.block_until_ready(multiply(matrices))
    products, started = 0, time.perf_counter()
    while not products or time.perf_counter() - started < seconds:
        jax.block_until_ready(multiply(matrices))
        products += len(used)
    return {"steps_per_second": products * 2 * PEAK_SIDE**3 / (time.perf_counter() - started)}


def needed_operations(*, observation: int, hidden: tuple[int, ...], actions: int, batch: int, ensemble_size: int) -> float:
    """Floating-point operations of the matrix products that a step of VBE cannot do without; everything else is small beside them.

    At s, three networks: q, f and f*. At s', four: q, its target, f's target and f*. Backwards through q and f, but not to their
    inputs. To act, q and all of f and f* once.
    """
    sizes = (observation, *hidden, actions)
    layers = [2.0 * inputs * outputs for inputs, outputs in itertools.pairwise(sizes)]
    forward = sum(layers)
    backward = 2 * forward - layers[0]
    return batch * (7 * forward + 2 * backward) + (1 + 2 * ensemble_size) * forward


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("training", "peak"))
    parser.add_argument("--environment", default="SparseMountainCar")
    parser.add_argument("--agent", default="vbe")
    parser.add_argument("--options", type=json.loads, default={})
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--devices", type=int)
    parser.add_argument("--seconds", type=float, default=5.0)
    chosen = parser.parse_args()
    if chosen.what == "peak":
        print(json.dumps(measure_peak(chosen.seconds)))
        return
    measured = measure_training(
        environment=chosen.environment,
        agent=chosen.agent,
        options=chosen.options,
        lanes=chosen.lanes,
        devices=chosen.devices,
        seconds=chosen.seconds,
    )
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
