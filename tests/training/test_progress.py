"""Progress is honest: the time left is what it takes at the speed of steps that were really timed, and no more is said than is known."""

import io
import re
import time
from typing import Any

import pytest

import vbe
from vbe.training import checkpoint, lanes, progress, train
from vbe.training.progress import LINE_EVERY, Reporter, duration


class Clock:
    """Time passes when told to."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.4, "0 s"),
        (59.6, "60 s"),
        (99, "99 s"),
        (100, "2 min"),
        (60 * 60, "60 min"),
        (99 * 60, "99 min"),
        (100 * 60, "1.7 h"),
        (36 * 3600, "36.0 h"),
    ],
)
def test_durations_are_rounded_to_what_one_plans_by(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def last_line(capsys: pytest.CaptureFixture[str]) -> str:
    out, lines = capsys.readouterr()
    assert out == ""
    return lines.splitlines()[-1]


def test_steps_whose_time_is_not_known_count_as_done_and_not_as_fast(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter("vbe in DeepSea", 10_000, enabled=True) as reporter:
        clock.now += 600  # a compilation
        reporter.skip(4_000)
        assert last_line(capsys) == "vbe in DeepSea: 40%, compiling"
        clock.now += 11
        reporter.advance(1_000, 10.0)
        assert last_line(capsys) == "vbe in DeepSea: 50%, 100 steps/s, 50 s left"
        # Half as fast since then: the speed is that of all the time that was measured.
        clock.now += 20
        reporter.advance(1_000, 20.0)
        assert last_line(capsys) == "vbe in DeepSea: 60%, 67 steps/s, 60 s left"
        # Another program's compilation changes what is done, not the speed.
        clock.now += 300
        reporter.skip(3_000)
        assert last_line(capsys) == "vbe in DeepSea: 90%, 67 steps/s, 15 s left"
        reporter.advance(1_000, 15.0, "1 of 2 lanes diverged")
        assert last_line(capsys) == "vbe in DeepSea: 100%, 67 steps/s, 0 s left, 1 of 2 lanes diverged"


def test_without_a_terminal_there_is_a_line_now_and_then_and_one_at_the_end(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter("title", 1_000, enabled=True) as reporter:
        for _ in range(1_000):
            clock.now += 0.1
            reporter.advance(1, 0.1)
    lines = capsys.readouterr().err.splitlines()
    # 100 seconds: a line when more than 10 seconds have passed since the one before.
    assert LINE_EVERY == 10.0 and 9 <= len(lines) <= 11
    assert lines[0].startswith("title: 10%, 10 steps/s, 90 s left") and lines[-1] == "title: 100%, 10 steps/s, 0 s left"
    done = [int(re.findall(r"(\d+)%", line)[0]) for line in lines]
    assert done == sorted(set(done)) and not any("\r" in line or "\x1b" in line for line in lines)


def test_what_is_over_before_it_could_be_timed_is_done(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter("title", 10, enabled=True) as reporter:
        reporter.skip(10)
    assert last_line(capsys) == "title: 100%, done"


def test_who_wants_to_see_nothing_sees_nothing(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter("title", 10, enabled=False) as reporter:
        clock.now += 100
        reporter.skip(5)
        reporter.advance(5, 1.0)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_has_one_bar_on_stderr(clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    with Reporter("vbe in DeepSea", 100, enabled=True) as reporter:
        reporter.skip(40)
        reporter.advance(60, 3.0)
    shown = terminal.getvalue()
    assert "vbe in DeepSea" in shown and "100%" in shown and "20 steps/s, 0 s left" in shown
    assert "\x1b[?25l" in shown and shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")  # the cursor is given back
    assert capsys.readouterr().out == ""


# What `train` reports


class Watched(Reporter):
    """Reports nothing, and keeps what it was to report."""

    runs: list["Watched"]

    def __init__(self, title: str, total: int, *, enabled: bool):
        super().__init__(title, total, enabled=False)
        self.total, self.skipped, self.timed = total, list[int](), list[tuple[int, float]]()
        self.events = ""
        self.runs.append(self)

    def skip(self, steps: int) -> None:
        self.skipped.append(steps)
        self.events += "s"

    def advance(self, steps: int, seconds: float, note: str = "") -> None:
        self.timed.append((steps, seconds))
        self.events += "a"


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[Watched]:
    monkeypatch.setattr(train, "Reporter", Watched)
    monkeypatch.setattr(Watched, "runs", [], raising=False)
    monkeypatch.setattr(lanes, "MOST_CHUNK_STEPS", 200)
    return Watched.runs


BATCH, STEPS, SEEDS = 4, 1_000, 3
# Two programs, of three lanes each.
ARGUMENTS: dict[str, Any] = {
    "environment": "DeepSea",
    "environment_options": {"size": [3, 4]},
    "agent": "epsilon-greedy",
    "agent_options": {"batch_size": BATCH, "buffer_size": 50, "target_period": 4, "pure_exploration": True},
    "seeds": SEEDS,
    "steps": STEPS,
    "devices": 1,
}


def test_neither_warm_up_nor_compilation_nor_what_an_earlier_run_did_is_timed(
    watched: list[Watched], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, saves = checkpoint.save, []

    def stop_at_the_seventh(*what: Any) -> None:
        saves.append(what)
        save(*what)
        if len(saves) == 7:  # in the second program
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "save", stop_at_the_seventh)
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        vbe.train(**ARGUMENTS, out=tmp_path / "run", checkpoint_seconds=0)
    monkeypatch.setattr(checkpoint, "save", save)
    vbe.train(**ARGUMENTS, out=tmp_path / "run")
    passed = time.monotonic() - started
    begun, resumed = watched

    whole = 200 * SEEDS
    rest = (STEPS - BATCH - 1) % 200 * SEEDS
    # A program: the warm-up, a first chunk whose time holds a compilation, three timed chunks and what is left.
    assert begun.events == "ssaaaa" + "ssa"
    assert begun.skipped == [(BATCH + 1) * SEEDS, whole] * 2
    assert [steps for steps, _ in begun.timed] == [whole, whole, whole, rest, whole]
    # Continued: the whole first program and what the second had done, then a compilation again.
    assert resumed.events == "sssaa"
    assert resumed.skipped == [STEPS * SEEDS, (BATCH + 1) * SEEDS + 2 * whole, whole]
    assert [steps for steps, _ in resumed.timed] == [whole, rest]
    assert resumed.total == begun.total == 2 * STEPS * SEEDS
    assert sum(resumed.skipped) + sum(steps for steps, _ in resumed.timed) == resumed.total
    # Each chunk's seconds are its own: together they are less than all that passed, most of which was compilation.
    seconds = [seconds for _, seconds in (*begun.timed, *resumed.timed)]
    assert min(seconds) > 0 and sum(seconds) < passed


def test_progress_is_shown_if_asked_for_and_by_default_on_terminals_only(capsys: pytest.CaptureFixture[str]) -> None:
    short = {**ARGUMENTS, "environment_options": {"size": 3}, "steps": BATCH + 1}
    vbe.train(**short)
    assert capsys.readouterr() == ("", "")
    vbe.train(**short, progress=True)
    assert capsys.readouterr() == ("", "epsilon-greedy in DeepSea: 100%, done\n")
