"""Figures: everything that should be in them is in them."""

from pathlib import Path

import matplotlib.image
import matplotlib.pyplot
import numpy as np
import polars as pl
import pytest
from matplotlib.colors import to_rgb

from vbe.analysis import figures
from vbe.analysis.figures import AGENT_STYLES, Panel, Style, draw_bars, draw_curves, draw_panels
from vbe.analysis.statistics import bootstrap_interval


def results(agents: tuple[str, ...] = ("vbe", "rnd", "rnd-ppo"), sizes: tuple[int, ...] = (10, 20), seeds: int = 4) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    rows = [
        (agent, "DeepSea", seed, step, "unique_states", float(step * size * rng.uniform(0.5, 1)), size)
        for agent in agents
        for size in sizes
        for seed in range(seeds)
        for step in range(10, 101, 10)
    ]
    return pl.DataFrame(rows, schema=["agent", "environment", "seed", "step", "metric", "value", "size"], orient="row")


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are drawn, kept open to be looked at."""
    kept = []
    monkeypatch.setattr(matplotlib.pyplot, "close", kept.append)
    yield kept
    monkeypatch.undo()
    matplotlib.pyplot.close("all")


def colours(path: Path) -> set[tuple[int, ...]]:
    pixels = matplotlib.image.imread(path)[..., :3].reshape(-1, 3)
    return {tuple(pixel) for pixel in np.round(pixels * 255).astype(int)}


def test_agents_look_the_same_in_every_figure(tmp_path):
    table = results(sizes=(10,)).drop("size")
    for agents in (["vbe", "rnd"], ["rnd", "vbe"]):
        path = draw_curves(pl.concat([table.filter(pl.col("agent") == agent) for agent in agents]), tmp_path / "curves.png")
        for agent in agents:
            assert tuple(round(255 * x) for x in to_rgb(AGENT_STYLES[agent].colour)) in colours(path)


def test_no_two_agents_look_alike():
    assert len(set(AGENT_STYLES.values())) == len(AGENT_STYLES)


def test_curves_are_means_in_their_intervals(tmp_path, drawn):
    table = results(("vbe",), (10,)).drop("size")
    draw_panels([Panel("title", table, "unique_states", (990.0, "most"))], tmp_path / "curves.png")
    (ax,) = drawn[0].axes
    values = table.sort("seed", "step")["value"].to_numpy().reshape(4, 10)
    curve = next(line for line in ax.lines if len(line.get_xdata()) > 2)
    np.testing.assert_allclose(curve.get_ydata()[::10], values.mean(axis=0))
    low, high = bootstrap_interval(values)
    band = ax.collections[0].get_paths()[0].vertices[:, 1]
    np.testing.assert_allclose([band.min(), band.max()], [low.min(), high.max()])
    assert ax.get_title() == "title" and "most" in [text.get_text() for text in ax.texts]


def test_the_legend_says_how_many_runs_there_are(tmp_path, drawn):
    table = results(sizes=(10,)).drop("size")
    draw_panels([Panel("", table, "unique_states")], tmp_path / "same.png")
    fewer = table.filter((pl.col("agent") != "rnd") | (pl.col("seed") < 2))
    draw_panels([Panel("", fewer, "unique_states")], tmp_path / "different.png")
    same, different = (figure.legends[0] for figure in drawn)
    assert "means over 4 runs" in same.get_title().get_text()
    assert [text.get_text() for text in same.get_texts()] == ["vbe", "rnd", "rnd-ppo"]
    assert [text.get_text() for text in different.get_texts()] == ["vbe (4 runs)", "rnd (2 runs)", "rnd-ppo (4 runs)"]


def test_diverged_runs_are_not_drawn(tmp_path, drawn):
    table = results(("vbe",), (10,)).drop("size")
    lost = table.filter(pl.col("seed") == 0).tail(1).with_columns(metric=pl.lit("diverged"), value=pl.lit(1.0))
    draw_panels([Panel("", pl.concat([table, lost]), "unique_states")], tmp_path / "curves.png")
    assert "means over 3 runs" in drawn[0].legends[0].get_title().get_text()


def test_variants_beyond_the_known_styles_are_told_apart(tmp_path, drawn):
    table = pl.concat([results(("vbe",), (10,)).drop("size").with_columns(bonus_scale=pl.lit(float(c))) for c in range(9)])
    draw_panels([Panel("", table, "unique_states")], tmp_path / "many.png")
    looks = {(line.get_color(), line.get_linestyle()) for line in drawn[0].axes[0].lines}
    assert len(looks) == 9


def test_styles_can_be_given(tmp_path, drawn):
    table = results(("mine",), (10,)).drop("size")
    draw_panels([Panel("", table, "unique_states")], tmp_path / "mine.png", styles={"mine": Style("red", ":")})
    (line,) = drawn[0].axes[0].lines
    assert (line.get_color(), line.get_linestyle()) == ("red", ":")


def test_an_empty_panel_is_left_empty(tmp_path, drawn):
    table = results(sizes=(10,)).drop("size")
    draw_panels([Panel("full", table, "unique_states"), Panel("empty", table.clear(), "unique_states")], tmp_path / "two.png")
    assert [len(ax.lines) for ax in drawn[0].axes] == [3, 0]


def test_bars_are_means_with_intervals_stars_and_diamonds(tmp_path, drawn):
    table = results()
    path = draw_bars(
        table, tmp_path / "bars.png", "unique_states", "size", title="bars", most={10: 1000.0, 20: 2000.0}, published={("rnd", 20): 1234.0}
    )
    assert path.exists()
    (ax,) = drawn[0].axes
    last = table.filter(pl.col("step") == 100)
    expected = [last.filter(agent=a, size=s)["value"].mean() for a in ("vbe", "rnd", "rnd-ppo") for s in (10, 20)]
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], expected)
    offsets = [tuple(point) for points in ax.collections for point in np.ma.filled(points.get_offsets(), np.nan)]
    centre = ax.patches[3].get_x() + ax.patches[3].get_width() / 2
    assert any(np.allclose(point, (centre, 1234.0)) for point in offsets)
    assert {1000.0, 2000.0} <= {y for _, y in offsets}
    labels = [text.get_text() for text in drawn[0].legends[0].get_texts()]
    assert labels == ["vbe", "rnd", "rnd-ppo", "all there are", "published"]


def test_bars_are_drawn_of_what_is_there(tmp_path, drawn):
    table = results().filter((pl.col("agent") != "rnd") | (pl.col("size") != 20))
    draw_bars(table, tmp_path / "bars.png", "unique_states", "size")
    assert len(drawn[0].axes[0].patches) == 5


def test_a_figure_is_closed_even_if_drawing_fails(tmp_path):
    before = matplotlib.pyplot.get_fignums()
    with pytest.raises(ZeroDivisionError), figures.canvas(tmp_path / "none.png"):
        raise ZeroDivisionError
    assert matplotlib.pyplot.get_fignums() == before
    assert not (tmp_path / "none.png").exists()
