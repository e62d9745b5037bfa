"""Measures what else a user would pick: steps per second while learning. One process, one measurement.

It needs nothing of this library, only the peer, and runs with whatever Python has that installed. Everywhere: Mountain Car, two hidden
layers of 50, batches of 128, one update per step, a replay of 50,000 transitions, target copies every 4 steps, Adam at 1e-3.
"""

import argparse
import json
import time
from typing import Any

WARM_UP = 1_000  # steps before the clock starts


def torch_vbe(seconds: float, ensemble_size: int = 20) -> float:
    """VBE the straightforward way: a module per member, one Adam for all, a replay in NumPy, one environment."""
    import numpy as np
    import torch
    from torch import nn

    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    batch, gamma, period = 128, 0.99, 4

    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(2, 50), nn.ReLU(), nn.Linear(50, 50), nn.ReLU(), nn.Linear(50, 3))

    q, q_target = make(), make()
    targets, predictors, bootstraps = ([make() for _ in range(ensemble_size)] for _ in range(3))
    learned = [q, *predictors]
    optimizer = torch.optim.Adam([p for module in learned for p in module.parameters()], lr=1e-3)
    capacity, stored = 50_000, 0
    observations, next_observations = np.zeros((2, capacity, 2), np.float32)
    actions, rewards, discounts = np.zeros(capacity, np.int64), np.zeros(capacity, np.float32), np.zeros(capacity, np.float32)
    position, velocity = -0.5, 0.0

    def observe() -> Any:
        return np.array([(position + 1.2) / 1.8, (velocity + 0.07) / 0.14], np.float32)

    def act(observation: Any) -> int:
        with torch.no_grad():
            x = torch.from_numpy(observation)
            errors = torch.stack([f(x) - g(x) for f, g in zip(predictors, targets, strict=True)])
            values = q(x) + errors.abs().max(dim=0).values
        return int(values.argmax())

    def learn(step: int) -> None:
        rows = random.integers(0, min(stored, capacity), batch)
        rows[0] = (stored - 1) % capacity
        s, s_next = torch.from_numpy(observations[rows]), torch.from_numpy(next_observations[rows])
        a = torch.from_numpy(actions[rows])[:, None]
        r, discount = torch.from_numpy(rewards[rows])[:, None], torch.from_numpy(discounts[rows])[:, None]
        member = int(random.integers(ensemble_size))
        with torch.no_grad():
            a_next = q(s_next).argmax(dim=1, keepdim=True)
            goal = r + discount * q_target(s_next).gather(1, a_next)
            implied = targets[member](s).gather(1, a) - discount * targets[member](s_next).gather(1, a_next)
            error_goal = implied + discount * bootstraps[member](s_next).gather(1, a_next)
        loss = nn.functional.mse_loss(q(s).gather(1, a), goal)
        loss = loss + nn.functional.mse_loss(predictors[member](s).gather(1, a), error_goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % period == 0:
            q_target.load_state_dict(q.state_dict())
            for predictor, bootstrap in zip(predictors, bootstraps, strict=True):
                bootstrap.load_state_dict(predictor.state_dict())

    step, timed, started = 0, 0, 0.0
    while True:
        observation = observe()
        action = act(observation) if stored > batch else int(random.integers(3))
        velocity = float(np.clip(velocity + 0.001 * (action - 1) - 0.0025 * np.cos(3 * position), -0.07, 0.07))
        position += velocity
        if position < -1.2:
            position, velocity = -1.2, 0.0
        arrived = position > 0.6
        row = stored % capacity
        observations[row], next_observations[row], actions[row] = observation, observe(), action
        rewards[row], discounts[row] = float(arrived), 0.0 if arrived else gamma
        stored += 1
        if arrived:
            position, velocity = random.uniform(-0.6, -0.4), 0.0
        if stored > batch:
            learn(step)
        step += 1
        if step == WARM_UP:
            started = time.perf_counter()
        elif step > WARM_UP:
            timed += 1
            if time.perf_counter() - started > seconds:
                return timed / (time.perf_counter() - started)


DQN = {
    "learning_rate": 1e-3,
    "buffer_size": 50_000,
    "learning_starts": 129,
    "batch_size": 128,
    "train_freq": 1,
    "gradient_steps": 1,
    "target_update_interval": 4,
}


def _stable_baselines(algorithm: Any, policy_options: dict[str, Any], seconds: float) -> float:
    """Both have the interface of Stable-Baselines3: a callback starts the clock after a while and stops the run in time."""
    from stable_baselines3.common.callbacks import BaseCallback

    class Clock(BaseCallback):
        started = steps = taken = 0.0

        def _on_step(self) -> bool:
            if self.n_calls == WARM_UP:
                self.started = time.perf_counter()
            self.steps, self.taken = self.n_calls - WARM_UP, time.perf_counter() - self.started
            return self.n_calls <= WARM_UP or self.taken < seconds

    clock = Clock()
    algorithm("MlpPolicy", "MountainCar-v0", policy_kwargs=policy_options, **DQN).learn(10**9, callback=clock)
    return clock.steps / clock.taken


def sb3_dqn(seconds: float) -> float:
    import torch
    from stable_baselines3 import DQN as Algorithm

    torch.set_num_threads(1)
    return _stable_baselines(Algorithm, {"net_arch": [50, 50]}, seconds)


def sbx_dqn(seconds: float) -> float:
    import sbx

    return _stable_baselines(sbx.DQN, {"net_arch": [50, 50]}, seconds)


def rejax_dqn(seconds: float, seeds: int = 1) -> float:
    """Compiled whole; evaluation is switched off. Several seeds side by side by `vmap`."""
    import flax.linen as nn
    import jax
    import jax.numpy as jnp
    import rejax
    from rejax.networks import DiscreteQNetwork, EpsilonGreedyPolicy

    # Its own factory has hidden layers of 64 whatever it is asked for.
    agent = EpsilonGreedyPolicy(DiscreteQNetwork)(hidden_layer_sizes=(50, 50), action_dim=3, activation=nn.relu)

    def make(steps: int) -> Any:
        algorithm = rejax.DQN.create(
            env="MountainCar-v0",
            num_envs=1,
            buffer_size=50_000,
            fill_buffer=129,
            batch_size=128,
            learning_rate=1e-3,
            num_epochs=1,
            target_update_freq=4,
            total_timesteps=steps,
            eval_freq=steps,
            skip_initial_evaluation=True,
        )
        return algorithm.replace(agent=agent, eval_callback=lambda algorithm, state, key: jnp.zeros(()))

    def run(steps: int) -> float:
        keys = jax.random.split(jax.random.key(0), seeds)
        algorithm = make(steps)
        train = jax.jit(algorithm.train if seeds == 1 else jax.vmap(algorithm.train))
        compiled = train.lower(keys[0] if seeds == 1 else keys).compile()
        started = time.perf_counter()
        jax.block_until_ready(compiled(keys[0] if seeds == 1 else keys))
        return time.perf_counter() - started

    # A run's length is compiled in: a short one tells how long the one that counts has to be.
    steps = WARM_UP
    steps = max(steps, int(steps * seconds / run(steps)))
    return steps * seeds / run(steps)


PEERS = {
    "torch-vbe": torch_vbe,
    "sb3-dqn": sb3_dqn,
    "sbx-dqn": sbx_dqn,
    "rejax-dqn": rejax_dqn,
    "rejax-dqn-32": lambda seconds: rejax_dqn(seconds, seeds=32),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--seconds", type=float, default=5.0)
    chosen = parser.parse_args()
    print(json.dumps({"steps_per_second": PEERS[chosen.peer](chosen.seconds)}))


if __name__ == "__main__":
    main()
