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


def bsuite_boot_dqn(seconds: float) -> float:
    """bsuite's own Bootstrapped DQN in JAX, 20 members, at its own setting, on its own Deepsea of size 10."""
    from bsuite.baselines.jax.boot_dqn.agent import default_agent
    from bsuite.environments.deep_sea import DeepSea

    environment = DeepSea(size=10, randomize_actions=True, mapping_seed=0)
    agent = default_agent(environment.observation_spec(), environment.action_spec())
    warm_up, steps, started = 200, 0, 0.0  # a step takes 20 updates, one after another
    while True:
        timestep = environment.reset()
        while not timestep.last():
            action = agent.select_action(timestep)
            after = environment.step(action)
            agent.update(timestep, action, after)
            timestep, steps = after, steps + 1
            if steps == warm_up:
                started = time.perf_counter()
            elif steps > warm_up and time.perf_counter() - started > seconds:
                return (steps - warm_up) / (time.perf_counter() - started)


def torch_rnd_ppo(seconds: float) -> float:
    """PPO with RND the straightforward way: one environment, rollouts of 128, 4 epochs of 4 minibatches, two value heads."""
    import gymnasium
    import numpy as np
    import torch
    from torch import nn

    torch.set_num_threads(1)
    length, epochs, minibatches, trace = 128, 4, 4, 0.95
    discounts = torch.tensor([0.999, 0.99])

    def make(outputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(2, 50), nn.ReLU(), nn.Linear(50, 50), nn.ReLU(), nn.Linear(50, outputs))

    policy, critic, predictor, target = make(3), make(2), make(64), make(64)
    learned = [*policy.parameters(), *critic.parameters(), *predictor.parameters()]
    optimizer = torch.optim.Adam(learned, lr=1e-4)
    environment = gymnasium.make("MountainCar-v0")
    observation, _ = environment.reset(seed=0)
    mean, square, count, bonus_square = np.zeros(2), np.ones(2), 1e-4, 1.0

    def learn(s: Any, s_next: Any, a: Any, old: Any, r: Any, ends: Any) -> None:
        nonlocal mean, square, count, bonus_square
        mean = (mean * count + s_next.sum(0)) / (count + length)
        square = (square * count + (s_next**2).sum(0)) / (count + length)
        count += length
        x, x_next = torch.from_numpy(s), torch.from_numpy(s_next)
        normal = ((s_next - mean) / np.sqrt(np.maximum(square - mean**2, 1e-6))).clip(-5, 5).astype(np.float32)
        seen = torch.from_numpy(normal)
        with torch.no_grad():
            bonus = (predictor(seen) - target(seen)).square().sum(1) / 2
            bonus_square = 0.99 * bonus_square + 0.01 * float(bonus.square().mean())
            rewards = torch.stack([torch.from_numpy(r), bonus / bonus_square**0.5], dim=1)
            values, next_values = critic(x), critic(x_next)
            going_on = torch.stack([1 - torch.from_numpy(ends), torch.ones(length)], dim=1) * discounts
            errors = rewards + going_on * next_values - values
            advantages, running = torch.zeros(length, 2), torch.zeros(2)
            for t in reversed(range(length)):
                running = errors[t] + trace * going_on[t] * running
                advantages[t] = running
            returns = advantages + values
            weighted = 2 * advantages[:, 0] + advantages[:, 1]
        for _ in range(epochs):
            for rows in torch.randperm(length).chunk(minibatches):
                log_probs = torch.log_softmax(policy(x[rows]), dim=1)
                ratio = (log_probs.gather(1, a[rows, None])[:, 0] - old[rows]).exp()
                gain = torch.minimum(ratio * weighted[rows], ratio.clamp(0.9, 1.1) * weighted[rows]).mean()
                entropy = -(log_probs.exp() * log_probs).sum(1).mean()
                value_loss = (critic(x[rows]) - returns[rows]).square().mean(0).sum() / 2
                few = rows[: len(rows) // 4]
                fit = nn.functional.mse_loss(predictor(seen[few]), target(seen[few]).detach())
                optimizer.zero_grad()
                (value_loss + fit - gain - 0.001 * entropy).backward()
                nn.utils.clip_grad_norm_(learned, 0.5)
                optimizer.step()

    steps, started = 0, 0.0
    while True:
        rows = []
        for _ in range(length):
            with torch.no_grad():
                choice = torch.distributions.Categorical(logits=policy(torch.from_numpy(observation)))
                action = choice.sample()
            after, reward, terminated, truncated, _ = environment.step(int(action))
            rows.append((observation, after, int(action), float(choice.log_prob(action)), float(reward), float(terminated)))
            observation = environment.reset()[0] if terminated or truncated else after
        s, s_next, a, old, r, ends = (np.array(column) for column in zip(*rows, strict=True))
        floats = [column.astype(np.float32) for column in (s, s_next, old, r, ends)]
        learn(floats[0], floats[1], torch.from_numpy(a), torch.from_numpy(floats[2]), floats[3], floats[4])
        steps += length
        if steps == 2 * length:
            started = time.perf_counter()
        elif steps > 2 * length and time.perf_counter() - started > seconds:
            return (steps - 2 * length) / (time.perf_counter() - started)


PEERS = {
    "torch-vbe": torch_vbe,
    "sb3-dqn": sb3_dqn,
    "sbx-dqn": sbx_dqn,
    "rejax-dqn": rejax_dqn,
    "bsuite-boot-dqn": bsuite_boot_dqn,
    "torch-rnd-ppo": torch_rnd_ppo,
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
