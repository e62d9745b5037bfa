"""Who sees all of a Deepsea? VBE, VBE-SL and epsilon-greedy (without rewards: a random walk) side by side.

No reward, a table for a network, 5 seeds, the paper's largest grid and its 10,000 episodes: `make demo`.
"""

import argparse
import sys
from pathlib import Path

import polars as pl

import vbe
from vbe.analysis import draw_curves, summarise
from vbe.analysis.report import print_summary

AGENTS = {"vbe": {"ensemble_size": 1}, "vbe-sl": {"ensemble_size": 20}, "epsilon-greedy": {}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=50, help="rows and columns of the grid (default: 50)")
    parser.add_argument("--episodes", type=int, default=10_000, help="default: 10000")
    parser.add_argument("--seeds", type=int, default=5, help="default: 5")
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="default: runs/demo")
    chosen = parser.parse_args()

    states = chosen.size * (chosen.size + 1) // 2
    print(f"Deepsea {chosen.size} x {chosen.size}, {states} states, {chosen.episodes} episodes, {chosen.seeds} seeds each")
    tables = []
    for agent, options in AGENTS.items():
        results = vbe.train(
            environment="DeepSea",
            environment_options={"size": chosen.size},
            agent=agent,
            agent_options={"pure_exploration": True, **options},
            seeds=chosen.seeds,
            steps=chosen.episodes * chosen.size,
            out=chosen.out / f"{agent}-{chosen.size}-{chosen.episodes}-{chosen.seeds}",
            progress=True,
        )
        tables.append(results.table)
    table = pl.concat(tables)
    summary = summarise(table).filter(pl.col("metric") == "unique_states")
    print_summary(summary)
    summary.write_csv(chosen.out / "coverage.csv")
    picture = draw_curves(table, chosen.out / "coverage.png", ["unique_states"], references={"unique_states": (states, "all states")})
    print(f"picture: {picture}\ntable:   {chosen.out / 'coverage.csv'}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt as stop:
        print(f"\n{stop or 'stopped'}", file=sys.stderr)
        sys.exit(130)
