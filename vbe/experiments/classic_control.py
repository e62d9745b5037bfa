"""Who learns fastest where exploration matters? (The paper's figure of the classic environments, with its best settings.)"""

from vbe.experiments.experiment import Experiment, Run, command_line

STEPS = 50_000
SEEDS = 30
# Ensemble size k and scale c, as the paper's tables have them; None where a method has no such thing.
SETTINGS: dict[str, dict[str, tuple[int | None, float | None]]] = {
    "vbe": {"RiverSwim": (20, 1.0), "PuddleWorld": (1, 10.0), "SparseMountainCar": (2, 1.0)},
    "epsilon-greedy": {"RiverSwim": (None, None), "PuddleWorld": (None, None), "SparseMountainCar": (None, None)},
    "dqn-p": {"RiverSwim": (None, 10.0), "PuddleWorld": (None, 3.0), "SparseMountainCar": (None, 1.0)},
    "bdqn": {"RiverSwim": (8, 10.0), "PuddleWorld": (2, 1.0), "SparseMountainCar": (20, 1.0)},
    "acb": {"RiverSwim": (20, 10.0), "PuddleWorld": (1, 1.0), "SparseMountainCar": (8, 1.0)},
    "rnd": {"RiverSwim": (None, 10.0), "PuddleWorld": (None, 1.0), "SparseMountainCar": (None, 1.0)},
    "rnd-ppo": {"RiverSwim": (None, 1.0), "PuddleWorld": (None, 10.0), "SparseMountainCar": (None, 10.0)},
    "acb-ppo": {"RiverSwim": (None, 1.0), "PuddleWorld": (None, 3.0), "SparseMountainCar": (None, 1.0)},
}


def _options(agent: str, size: int | None, scale: float | None) -> dict[str, float]:
    options: dict[str, float] = {}
    if size is not None:
        options["ensemble_size"] = size
    if scale is not None:
        options["prior_scale" if agent in ("bdqn", "dqn-p") else "bonus_scale"] = scale
    return options


EXPERIMENT = Experiment(
    "classic_control",
    tuple(
        Run(
            f"{agent}-{environment}",
            {
                "environment": environment,
                "agent": agent,
                "agent_options": _options(agent, *setting),
                "seeds": SEEDS,
                "steps": STEPS,
            },
        )
        for agent, settings in SETTINGS.items()
        for environment, setting in settings.items()
    ),
)

if __name__ == "__main__":
    command_line(EXPERIMENT)
