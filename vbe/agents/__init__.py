"""Agents: one file per learner, and the table that names their combinations."""

from vbe.agents.bootstrapped_dqn import bootstrapped_dqn
from vbe.agents.double_dqn import double_dqn
from vbe.agents.explorer import explorer
from vbe.agents.recipes import AGENTS, Recipe

__all__ = ["AGENTS", "Recipe", "bootstrapped_dqn", "double_dqn", "explorer"]
