"""The paper's experiments: one file per figure. Each says what runs, what the paper claims of it, and how it is drawn.

`python -m vbe.experiments.NAME` runs one of `NAMES`, `python -m vbe.experiments` makes all figures and tables anew.
"""

NAMES = ("coverage", "classic_control", "deep_sea", "target_policy", "bsuite_deep_sea")
