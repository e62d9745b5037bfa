"""Progress that a person can plan by: steps done, speed, and the time left at the speed measured so far (compilation left out)."""

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

LINE_EVERY = 10.0  # seconds, where there is no terminal


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


class Reporter:
    """Shows one bar on a terminal, a line now and then elsewhere, or nothing."""

    def __init__(self, title: str, total: int, *, enabled: bool):
        self._title, self._total, self._enabled = title, total, enabled
        self._done = 0
        self._timed = 0
        self._seconds = 0.0
        self._last_line = time.monotonic()
        self._console = Console(stderr=True)
        self._bar: Progress | None = None
        if enabled and self._console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[status]}"))
            self._bar = Progress(*columns, console=self._console)
            self._task = self._bar.add_task(title, total=total, status="compiling")

    def __enter__(self) -> "Reporter":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def skip(self, steps: int) -> None:
        """Steps that an earlier run did, or whose time holds a compilation."""
        self._done += steps
        self._show("")

    def advance(self, steps: int, seconds: float, note: str = "") -> None:
        self._done += steps
        self._timed += steps
        self._seconds += seconds
        self._show(note)

    def _show(self, note: str) -> None:
        if not self._enabled:
            return
        status = "compiling" if self._done < self._total else "done"
        if self._timed:
            speed = self._timed / self._seconds
            status = f"{speed:,.0f} steps/s, {duration((self._total - self._done) / speed)} left"
        status += f", {note}" if note else ""
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, status=status)
        elif time.monotonic() - self._last_line > LINE_EVERY or self._done >= self._total:
            self._last_line = time.monotonic()
            print(f"{self._title}: {self._done / self._total:.0%}, {status}", file=sys.stderr, flush=True)
