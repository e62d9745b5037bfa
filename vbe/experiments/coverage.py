"""Which agents see all of a Deepsea that pays nothing? (The paper's figure of state coverage, and its table of best settings.)"""

from vbe.experiments.experiment import Experiment, Run, command_line

SIZES = (30, 35, 40, 45, 50)
EPISODES = 10_000
SEEDS = 5
SETTINGS = {
    "vbe": {"ensemble_size": 1},
    "vbe-sl": {"ensemble_size": 20},
    "epsilon-greedy": {},
    "bdqn": {"ensemble_size": 20},
    "dqn-p": {},
    "rnd": {},
    "acb": {"ensemble_size": 20},
    "rnd-ppo": {},
    "acb-ppo": {},
}
# States seen after 10,000 episodes, as the authors publish them, for the sizes above. VBE: all, 5 of 5 seeds.
PUBLISHED = {
    "vbe": (465, 630, 820, 1035, 1275),
    "vbe-sl": (386, 490, 615, 747, 884),
    "bdqn": (465, 630, 811, 930, 922),
    "rnd": (313, 360, 427, 494, 588),
    "dqn-p": (209, 228, 337, 368, 418),
    "acb": (161, 198, 242, 264, 313),
}

EXPERIMENT = Experiment(
    "coverage",
    tuple(
        Run(
            f"{agent}-{size}",
            {
                "environment": "DeepSea",
                "environment_options": {"size": size},
                "agent": agent,
                "agent_options": {"pure_exploration": True, **options},
                "seeds": SEEDS,
                "steps": EPISODES * size,
            },
            {"size": size},
        )
        for agent, options in SETTINGS.items()
        for size in SIZES
    ),
)

if __name__ == "__main__":
    command_line(EXPERIMENT)
