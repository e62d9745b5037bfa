"""Makes the figures and tables of all experiments anew from their compact results; runs nothing."""

import importlib

from vbe.experiments import NAMES
from vbe.experiments.experiment import RESULTS, report


def main() -> None:
    for name in NAMES:
        results = RESULTS / f"{name}.parquet"
        if results.exists():
            report(importlib.import_module(f"vbe.experiments.{name}").EXPERIMENT, results)
        else:
            print(f"{name}: not run yet (python -m vbe.experiments.{name})")


if __name__ == "__main__":
    main()
