"""`train`: from a specification to a results table, surviving whatever happens in between."""

import dataclasses
import fcntl
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np
import polars as pl

from vbe.agents import AGENTS
from vbe.training import checkpoint, on_policy
from vbe.training import loop as off_policy
from vbe.training.devices import devices as all_devices
from vbe.training.lanes import Groups, Loop, gather, spread
from vbe.training.progress import Reporter
from vbe.training.records import Recorder
from vbe.training.spec import Spec, make_spec, programs
from vbe.types import UsageError, as_python

PACKAGES = ("vbe", "jax", "jaxlib", "optax", "numpy", "gymnasium", "polars")
DECISIVE = ("vbe", "jax", "jaxlib")  # other versions of these may compute other bits


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, after the current chunk was finished and saved."""


@dataclasses.dataclass(frozen=True)
class Results:
    """What a run gives.

    Attributes:
      table: long form, a polars DataFrame: agent, environment, seed, step, metric, value, and a column per option that is swept.
      spec: what was run.
      out: the folder that holds it all, if there is one.
    """

    table: pl.DataFrame
    spec: Spec
    out: Path | None


def train(
    *,
    environment: str,
    agent: str,
    environment_options: Mapping[str, Any] | None = None,
    agent_options: Mapping[str, Any] | None = None,
    seeds: int | Sequence[int] | np.ndarray = 1,
    steps: int = 50_000,
    out: str | Path | None = None,
    log_every: int | None = None,
    checkpoint_seconds: float = 60.0,
    progress: bool | None = None,
    devices: int | None = None,
) -> Results:
    """Trains an agent in an environment, once per seed and combination of swept options, all in compiled lanes.

    Args:
      environment: "RiverSwim", "PuddleWorld", "SparseMountainCar" or "DeepSea".
      agent: one of `vbe.AGENTS`.
      environment_options: such as `{"size": 20}`; `vbe list` shows them all. An option given a list is swept.
      agent_options: such as `{"ensemble_size": 1, "bonus_scale": [1.0, 3.0]}`; likewise.
      seeds: a count (0, 1, ...), a list, or an array. Equal seeds give all agents equal environments.
      steps: environment steps of each lane.
      out: a folder for results and checkpoints. If it holds an unfinished run of the same specification, that run continues, to the
        same results as if it had never stopped; if it holds a finished one, its results are read.
      log_every: steps between rows of the metrics that are not per episode; default: a hundredth of `steps`.
      checkpoint_seconds: the least time between checkpoints.
      progress: show progress on stderr; default: if that is a terminal.
      devices: how many devices to use; default: all.

    Returns:
      `Results`.

    Raises:
      UsageError: if anything asked for is impossible, in one line.
      Interrupted: after Ctrl-C, with everything saved.

    Example:
      >>> results = train(environment="DeepSea", environment_options={"size": 5}, agent="vbe", steps=500, seeds=2)
      >>> sorted(results.table["seed"].unique())
      [0, 1]
    """
    spec = make_spec(
        environment=environment,
        agent=agent,
        environment_options=environment_options,
        agent_options=agent_options,
        seeds=seeds,
        steps=steps,
        log_every=log_every,
    )
    available = all_devices()
    devices, checkpoint_seconds = as_python(devices), as_python(checkpoint_seconds)
    if devices is not None and not (isinstance(devices, int) and not isinstance(devices, bool) and 1 <= devices <= len(available)):
        raise UsageError(f"devices={devices!r}: must be an integer from 1 to {len(available)}, the devices that there are")
    if not (isinstance(checkpoint_seconds, (int, float)) and checkpoint_seconds >= 0):
        raise UsageError(f"checkpoint_seconds={checkpoint_seconds!r}: must be a number of seconds, at least 0")
    used = available[:devices]
    show = sys.stderr.isatty() if progress is None else progress
    if out is None:
        return Results(_Run(spec, None, used, checkpoint_seconds, show).finish(), spec, None)
    if not isinstance(out, (str, os.PathLike)):
        raise UsageError(f"out={out!r}: must be a path, a str or a pathlib.Path")
    with _folder(Path(out), spec, used) as folder:
        finished = folder / "results.parquet"
        if not finished.exists():
            table = _Run(spec, folder, used, checkpoint_seconds, show).finish()
            checkpoint.write_aside(finished, _parquet(table))
            shutil.rmtree(folder / "checkpoint", ignore_errors=True)
            shutil.rmtree(folder / "parts", ignore_errors=True)
        return Results(_read_finished(finished), spec, folder)


def _read_finished(path: Path) -> pl.DataFrame:
    try:
        return pl.read_parquet(path)
    # Polars panics at some damages, and a panic is no Exception.
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"out={str(path.parent)!r}: its {path.name} cannot be read ({reason}); delete it to run again") from None


@contextmanager
def _folder(out: Path, spec: Spec, used: list[jax.Device]) -> Iterator[Path]:
    """The run's folder, made or found fit for this specification, and locked against a second process."""
    description = json.loads(json.dumps(spec.as_json()))
    about = out / "run.json"
    if out.exists() and not out.is_dir():
        raise UsageError(f"out={str(out)!r}: is a file; must be a folder")
    if about.exists():
        try:
            before = json.loads(about.read_bytes())["spec"]
            if not isinstance(before, dict):
                raise TypeError("its spec is no object")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"out={str(out)!r}: its run.json cannot be read ({error}); choose another folder") from error
        if before != description:
            changed = [f"{k} {before.get(k)!r} there, {v!r} here" for k, v in description.items() if before.get(k) != v]
            raise UsageError(f"out={str(out)!r}: holds results of another run ({'; '.join(changed)}); choose another folder")
    elif out.exists() and any(path.name != ".lock" for path in out.iterdir()):
        raise UsageError(f"out={str(out)!r}: holds something else than a run's results; choose another folder")
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = (out / ".lock").open("w")
    except OSError as error:
        raise UsageError(f"out={str(out)!r}: cannot be written ({error.strerror})") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"out={str(out)!r}: another process is running it now") from None
        if not about.exists():
            checkpoint.write_aside(about, json.dumps({"spec": description, **provenance(used)}, indent=1).encode())
        yield out


def provenance(used: list[jax.Device]) -> dict[str, Any]:
    """Versions, devices and commit: what else a result depends on."""
    versions = {name: metadata.version(name) for name in PACKAGES if _installed(name)}
    git = subprocess.run(
        ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    ) if shutil.which("git") else None
    commit = git.stdout.strip() if git is not None and git.returncode == 0 else None
    return {"versions": versions, "devices": [device.device_kind for device in used], "commit": commit}


def _parquet(table: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    table.write_parquet(buffer, compression="zstd")
    return buffer.getvalue()


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What a run began with, as its run.json says, and would go on with otherwise."""
    was, is_now = (
        {**{name: about.get("versions", {}).get(name) for name in DECISIVE}, "commit": about.get("commit")} for about in (before, now)
    )
    return [f"{name} {was[name]}, goes on with {is_now[name]}" for name in was if was[name] != is_now[name]]


def _count_diverged(recorder: Recorder) -> int:
    return int(np.sum(recorder.arrays["diverged_at"] >= 0))


def _describe(array: tuple[tuple[int, ...], np.dtype] | None) -> str:
    return "missing" if array is None else f"{array[1]}{list(array[0])}"


class _Run:
    """The Python loop around the compiled chunks: progress, results, checkpoints and Ctrl-C live between chunks."""

    def __init__(self, spec: Spec, folder: Path | None, used: list[jax.Device], checkpoint_seconds: float, show: bool):
        self._spec, self._folder, self._used, self._show = spec, folder, used, show
        self._checkpoint_seconds = checkpoint_seconds
        self._programs = programs(spec)
        self._rows: list[pl.DataFrame] = []  # not yet written
        self._parts: dict[str, str] = {}  # files of rows that the checkpoint vouches for, and their checksums
        self._number = 0  # of the newest checkpoint
        self._saved_at = time.monotonic()
        self._interrupted = False

    def finish(self) -> pl.DataFrame:
        total = sum(len(program.lanes) for program in self._programs) * self._spec.steps
        title = f"{self._spec.agent} in {self._spec.environment}"
        with Reporter(title, total, enabled=self._show) as reporter, self._catching_ctrl_c():
            start, resumed = self._resume()
            for index in range(start):
                reporter.skip(len(self._programs[index].lanes) * self._spec.steps)
            for index in range(start, len(self._programs)):
                self._run_program(index, resumed if index == start else None, reporter)
        return pl.concat([*self._read_parts(), *self._rows])

    def _run_program(self, index: int, resumed: checkpoint.Checkpoint | None, reporter: Reporter) -> None:
        program = self._programs[index]
        recorder = Recorder(self._spec, program)
        make_loop = on_policy.make_loop if AGENTS[program.recipe].on_policy else off_policy.make_loop
        loop = make_loop(program, self._spec.steps, self._used)
        if resumed is not None:
            now = resumed.facts["time"]
            lanes = self._restore(resumed, loop, recorder)
            reporter.skip(now * len(program.lanes))
        else:
            now = loop.warm_up_steps
            lanes, record = loop.warm_up(loop.init())
            self._rows.append(recorder.add(0, gather(loop, record), learning=False))
            reporter.skip(now * len(program.lanes))
        compiled = False
        diverged = _count_diverged(recorder)
        # Lanes that have diverged leave no more rows: when all have, the rest of the program would be computed for nothing.
        while now < self._spec.steps and diverged < len(program.lanes):
            started = time.monotonic()
            lanes, record = loop.chunk(lanes, now)
            self._rows.append(recorder.add(now, gather(loop, record), learning=True))
            steps = min(loop.chunk_steps, self._spec.steps - now)
            now += steps
            diverged = _count_diverged(recorder)
            note = f"{diverged} of {len(program.lanes)} lanes diverged" if diverged else ""
            if compiled:
                reporter.advance(steps * len(program.lanes), time.monotonic() - started, note)
            else:
                reporter.skip(steps * len(program.lanes))
                compiled = True
            if self._interrupted or time.monotonic() - self._saved_at >= self._checkpoint_seconds:
                self._save(index, now, gather(loop, lanes), recorder)
            if self._interrupted:
                raise Interrupted(self._farewell())
        if now < self._spec.steps:
            reporter.skip((self._spec.steps - now) * len(program.lanes))

    def _restore(self, saved: checkpoint.Checkpoint, loop: Loop, recorder: Recorder) -> Groups:
        """The lanes of a checkpoint, on the devices; the recorder takes up its arrays."""
        shapes, structure = jax.tree.flatten(jax.eval_shape(loop.init)[0])
        expected = {f"lanes/{i:04d}": ((loop.num_lanes, *x.shape[2:]), x.dtype) for i, x in enumerate(shapes)}
        expected |= {f"recorder/{name}": (x.shape, x.dtype) for name, x in recorder.arrays.items()}
        found = {name: (x.shape, x.dtype) for name, x in saved.arrays.items()}
        for name in sorted(expected.keys() | found.keys()):
            if found.get(name) != expected.get(name):
                raise UsageError(
                    f"out={str(self._folder)!r}: its checkpoint does not fit this version of the program ({name} is "
                    f"{_describe(found.get(name))}, should be {_describe(expected.get(name))}); choose another folder, or go on with the "
                    "versions in its run.json"
                )
        recorder.arrays = {name: saved.arrays[f"recorder/{name}"] for name in recorder.arrays}
        return spread(loop, jax.tree.unflatten(structure, [saved.arrays[f"lanes/{i:04d}"] for i in range(len(shapes))]))

    def _farewell(self) -> str:
        if self._folder is None:
            return "stopped; nothing was saved, for want of an output folder"
        return f"stopped and saved in {self._folder}; the same command continues from there"

    def _save(self, index: int, now: int, lanes: Any, recorder: Recorder) -> None:
        self._saved_at = time.monotonic()
        if self._folder is None:
            return
        self._number += 1
        parts = self._folder / "parts"
        parts.mkdir(exist_ok=True)
        name, data = f"{self._number:08d}.parquet", _parquet(pl.concat(self._rows))
        checkpoint.write_aside(parts / name, data)
        self._rows, self._parts = [], {**self._parts, name: checkpoint.digest(data)}
        arrays = {f"lanes/{i:04d}": x for i, x in enumerate(jax.tree.leaves(lanes))}
        arrays |= {f"recorder/{name}": x for name, x in recorder.arrays.items()}
        facts = {"program": index, "time": now, "parts": self._parts, "devices": len(self._used)}
        checkpoint.save(self._folder / "checkpoint", self._number, arrays, facts)

    def _resume(self) -> tuple[int, checkpoint.Checkpoint | None]:
        """Which program to begin with, and the checkpoint to begin it from, if there is one."""
        if self._folder is None:
            return 0, None
        # Numbers go on from the highest, be it damaged: a new checkpoint with a lower one would count as old and be deleted.
        self._number = max(checkpoint.numbers(self._folder / "checkpoint"), default=0)
        found = checkpoint.load_newest(self._folder / "checkpoint", self._check_parts)
        if found is None:
            return 0, None
        _, newest = found
        self._warn_of_changes(self._folder, newest)
        self._parts = newest.facts["parts"]
        return newest.facts["program"], newest

    def _warn_of_changes(self, folder: Path, newest: checkpoint.Checkpoint) -> None:
        if newest.facts["devices"] != len(self._used):
            warnings.warn(
                f"begun on {newest.facts['devices']} devices, goes on with {len(self._used)}: lanes that are compiled together in other "
                "numbers round otherwise, so results may differ in their last bits from a run that was not interrupted",
                stacklevel=5,
            )
        changes = _changes(json.loads((folder / "run.json").read_bytes()), provenance(self._used))
        if changes:
            warnings.warn(f"begun with {'; '.join(changes)}: results may differ from those of a run that was not interrupted", stacklevel=5)

    def _check_parts(self, facts: Mapping[str, Any]) -> None:
        for name, digest in facts["parts"].items():
            self._read_part(name, digest)

    def _read_parts(self) -> list[pl.DataFrame]:
        try:
            return [pl.read_parquet(io.BytesIO(self._read_part(name, digest))) for name, digest in self._parts.items()]
        except (OSError, ValueError) as error:  # it was whole when this process began, or wrote it
            raise UsageError(f"out={str(self._folder)!r}: {error}; the same command goes on from a checkpoint before it") from error

    def _read_part(self, name: str, digest: str) -> bytes:
        assert self._folder is not None
        data = (self._folder / "parts" / name).read_bytes()
        if checkpoint.digest(data) != digest:
            raise ValueError(f"the checksum of parts/{name} does not match")
        return data

    @contextmanager
    def _catching_ctrl_c(self) -> Iterator[None]:
        """Ctrl-C finishes the chunk; a second one stops at once. Only the main thread may handle signals."""
        try:
            before = signal.getsignal(signal.SIGINT)
            signal.signal(signal.SIGINT, self._on_ctrl_c)
        except ValueError:
            yield
            return
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _on_ctrl_c(self, number: int, frame: Any) -> None:
        if self._interrupted:
            raise KeyboardInterrupt
        self._interrupted = True

