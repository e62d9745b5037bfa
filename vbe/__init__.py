"""Value bonuses for exploration in value-based deep reinforcement learning."""

from vbe import bonuses, environments, networks
from vbe.agents import AGENTS
from vbe.environments.gymnasium import register
from vbe.training.train import Interrupted, Results, train
from vbe.types import Agent, Bonus, Environment, Network, Step, Transition, UsageError

__version__ = "0.1.0"

__all__ = [
    "AGENTS",
    "Agent",
    "Bonus",
    "Environment",
    "Interrupted",
    "Network",
    "Results",
    "Step",
    "Transition",
    "UsageError",
    "bonuses",
    "environments",
    "networks",
    "train",
]

register()
