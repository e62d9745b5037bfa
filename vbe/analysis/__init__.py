"""Statistics, tables and figures: functions of a results table alone."""

from vbe.analysis.figures import draw_curves
from vbe.analysis.statistics import bootstrap_interval, curves, interquartile_mean, outcomes, summarise

__all__ = ["bootstrap_interval", "curves", "draw_curves", "interquartile_mean", "outcomes", "summarise"]
