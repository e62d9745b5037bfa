"""Turns what steps leave into the rows of a long-form table, chunk by chunk, with all that is unfinished kept in plain arrays."""

from typing import Any

import numpy as np
import polars as pl

from vbe.training.lanes import Record
from vbe.training.spec import Program, Spec
from vbe.types import UsageError

METRICS = (
    "accumulated_reward",
    "episode_return",
    "episode_discounted_return",
    "episode_length",
    "unique_states",
    "bonus_mean",
    "loss",
    "diverged",
)


class Recorder:
    """Follows the lanes of one program.

    Episode metrics have a row at each episode's last step. The others have one every `log_every` steps, and at the end: the reward
    and the states so far, and the means of the bonus of the actions taken and of the loss since the row before. A lane whose loss
    or bonus is not finite has diverged: it gets one last row, `diverged`.
    """

    def __init__(self, spec: Spec, program: Program):
        self._spec, self._program = spec, program
        self._counts_states = program.environment.visit is not None
        self._discounts = np.array([lane.numbers["discount"] for lane in program.lanes], np.float64)
        lanes = len(program.lanes)
        self.arrays: dict[str, np.ndarray] = {
            "accumulated_reward": np.zeros(lanes),
            "episode_return": np.zeros(lanes),
            "episode_discounted_return": np.zeros(lanes),
            "episode_length": np.zeros(lanes, np.int64),
            "bonus_sum": np.zeros(lanes),
            "loss_sum": np.zeros(lanes),
            "learning_steps": np.zeros(lanes, np.int64),
            "diverged_at": np.full(lanes, -1, np.int64),
        }

    def add(self, time: int, record: Record, *, learning: bool) -> pl.DataFrame:
        """Takes the records, leaves (lanes, steps), of the steps after `time`; returns their rows."""
        length = min(record.reward.shape[1], self._spec.steps - time)
        rows: list[tuple[int, str, np.ndarray, np.ndarray]] = []
        for lane in range(len(self._program.lanes)):
            if self.arrays["diverged_at"][lane] < 0:
                rows += [(lane, *row) for row in self._add_lane(lane, time, Record(*(x[lane, :length] for x in record)), learning)]
        return self._table(rows)

    def _add_lane(self, lane: int, time: int, record: Record, learning: bool) -> list[tuple[str, np.ndarray, np.ndarray]]:
        if not np.isfinite(record.reward).all():
            at = int(np.argmin(np.isfinite(record.reward)))
            seed = self._program.lanes[lane].seed
            raise UsageError(
                f"environment={self._spec.environment!r}: gave reward {record.reward[at]} at step {time + at + 1} (seed {seed}); "
                "rewards must be finite numbers"
            )
        rows = []
        if learning:
            sound = np.isfinite(record.loss) & np.isfinite(record.bonus)
            if not sound.all():
                at = int(np.argmin(sound))
                self.arrays["diverged_at"][lane] = time + at + 1
                rows.append(("diverged", np.array([time + at + 1]), np.ones(1)))
                record = Record(*(x[:at] for x in record))
        steps = time + 1 + np.arange(len(record.reward))
        rows += self._episodes(lane, steps, record)
        rows += self._intervals(lane, steps, record, learning)
        return rows

    def _episodes(self, lane: int, steps: np.ndarray, record: Record) -> list[tuple[str, np.ndarray, np.ndarray]]:
        ends = np.flatnonzero(record.terminated | record.truncated)
        starts = np.concatenate([[0], ends + 1])
        reward = record.reward.astype(np.float64)
        begun = self.arrays["episode_length"][lane]
        age = np.arange(len(reward)) - np.repeat(starts, np.diff([*starts, len(reward)]))
        age[: starts[1] if len(starts) > 1 else None] += begun
        sums = {
            "episode_return": reward,
            "episode_discounted_return": reward * self._discounts[lane] ** age,
            "episode_length": np.ones(len(reward), np.int64),
        }
        rows = []
        for metric, terms in sums.items():
            totals = np.add.reduceat(np.append(terms, 0), starts)
            totals[0] += self.arrays[metric][lane]
            self.arrays[metric][lane] = totals[-1]
            if len(ends):
                rows.append((metric, steps[ends], totals[:-1]))
        return rows

    def _intervals(self, lane: int, steps: np.ndarray, record: Record, learning: bool) -> list[tuple[str, np.ndarray, np.ndarray]]:
        logged = np.flatnonzero((steps % self._spec.log_every == 0) | (steps == self._spec.steps))
        accumulated = self.arrays["accumulated_reward"][lane] + np.cumsum(record.reward, dtype=np.float64)
        if len(accumulated):
            self.arrays["accumulated_reward"][lane] = accumulated[-1]
        rows = [("accumulated_reward", steps[logged], accumulated[logged])]
        if self._counts_states:
            rows.append(("unique_states", steps[logged], record.unique_states[logged]))
        if not learning:
            return rows
        starts = np.concatenate([[0], logged + 1])
        counts = np.diff([*starts, len(steps)])
        counts[0] += self.arrays["learning_steps"][lane]
        for metric, terms in (("bonus_mean", record.bonus), ("loss", record.loss)):
            name = "bonus_sum" if metric == "bonus_mean" else "loss_sum"
            totals = np.add.reduceat(np.append(terms.astype(np.float64), 0), starts)
            totals[0] += self.arrays[name][lane]
            self.arrays[name][lane] = totals[-1]
            rows.append((metric, steps[logged], totals[:-1] / np.maximum(counts[:-1], 1)))
        self.arrays["learning_steps"][lane] = counts[-1]
        return rows

    def _table(self, rows: list[tuple[int, str, np.ndarray, np.ndarray]]) -> pl.DataFrame:
        lengths = [len(steps) for _, _, steps, _ in rows]
        lane = np.repeat([row[0] for row in rows], lengths)
        metric = np.repeat([METRICS.index(row[1]) for row in rows], lengths)
        columns: dict[str, Any] = {
            "agent": pl.repeat(self._spec.agent, sum(lengths), eager=True),
            "environment": pl.repeat(self._spec.environment, sum(lengths), eager=True),
            "seed": np.array([x.seed for x in self._program.lanes], np.int64)[lane.astype(int)],
            "step": np.concatenate([np.zeros(0, np.int64), *(row[2] for row in rows)]).astype(np.int64),
            "metric": pl.Series(METRICS, dtype=pl.Enum(METRICS)).gather(metric.astype(np.uint32)),
            "value": np.concatenate([np.zeros(0), *(row[3] for row in rows)]).astype(np.float64),
        }
        for name in self._program.lanes[0].varied:
            columns[name] = self._swept(name).gather(lane.astype(np.uint32))
        return pl.DataFrame(columns)

    def _swept(self, name: str) -> pl.Series:
        """Each lane's value of an option, in a type that suits the whole sweep: the tables of its programs are put together."""
        values = [lane.varied[name] for lane in self._program.lanes]
        kinds = {type(v) for v in (*values, *{**self._spec.environment_options, **self._spec.agent_options}[name])}
        if kinds == {int, float}:
            return pl.Series(name, values, pl.Float64)
        if len(kinds) == 1 and kinds <= {bool, int, float, str}:
            return pl.Series(name, values)
        return pl.Series(name, [str(v) for v in values])
