"""Pictures of the environments, drawn with NumPy alone.

Each function takes the observations since the episode's start (the present one last), as Gymnasium's users see them,
and the environment's options, and returns an image (height, width, 3) uint8.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vbe.environments.mountain_car import LEFT, MAX_SPEED, RIGHT
from vbe.environments.puddle_world import GOAL, PUDDLES_HIGH, PUDDLES_LOW, RADIUS, START_HIGH, START_LOW

Color = tuple[int, int, int]
Point = tuple[float, float]  # x to the right, y down, in pixels

WHITE, INK, GOLD = (255, 255, 255), (38, 43, 51), (250, 196, 54)


def _mix(first: Color, second: Color, share: np.ndarray) -> np.ndarray:
    """Colors between two, one for each of the shares (...) of the second: (..., 3)."""
    first_color, second_color = np.array(first, np.float32), np.array(second, np.float32)
    return first_color + np.clip(share, 0, 1)[..., None].astype(np.float32) * (second_color - first_color)


class _Canvas:
    """An image that shapes can be painted on, with smooth edges: a pixel is covered as far as it lies inside."""

    def __init__(self, image: np.ndarray) -> None:
        self.image = np.array(image, np.float32)

    def pixels(self) -> np.ndarray:
        return np.rint(self.image).astype(np.uint8)

    def _paint(
        self,
        points: Sequence[Point],
        margin: float,
        color: Color,
        opacity: float,
        distance: Callable[[np.ndarray, np.ndarray], np.ndarray],
    ) -> None:
        """Paints where the distance is negative, looking no further than `margin` around the points."""
        corners = np.array(points)
        height, width = self.image.shape[:2]
        left, top = np.maximum(np.floor(corners.min(0) - margin - 1), 0).astype(int)
        right, bottom = np.minimum(np.ceil(corners.max(0) + margin + 1), (width, height)).astype(int)
        if left >= right or top >= bottom:
            return
        x, y = np.arange(left, right)[None] + 0.5, np.arange(top, bottom)[:, None] + 0.5
        cover = opacity * np.clip(0.5 - distance(x, y), 0, 1)[..., None]
        region = self.image[top:bottom, left:right]
        region += cover * (np.array(color, np.float32) - region)

    def disc(self, center: Point, radius: float, color: Color, opacity: float = 1) -> None:
        self._paint([center], radius, color, opacity, lambda x, y: np.hypot(x - center[0], y - center[1]) - radius)

    def line(self, ends: Sequence[Point], width: float, color: Color, opacity: float = 1) -> None:
        (x0, y0), (x1, y1) = ends
        dx, dy = x1 - x0, y1 - y0
        squared = dx * dx + dy * dy or 1.0

        def distance(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            along = np.clip(((x - x0) * dx + (y - y0) * dy) / squared, 0, 1)
            return np.hypot(x - x0 - along * dx, y - y0 - along * dy) - width / 2

        self._paint(ends, width / 2, color, opacity, distance)

    def polygon(self, points: Sequence[Point], color: Color, opacity: float = 1) -> None:
        """A convex polygon, its corners in either order."""
        corners = np.array(points)
        edges = np.roll(corners, -1, 0) - corners
        outward = np.stack([edges[:, 1], -edges[:, 0]], -1) / np.hypot(*edges.T)[:, None]
        outward *= np.sign(np.sum(outward * (corners - corners.mean(0)), -1, keepdims=True))

        def distance(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            sides = [(x - px) * nx + (y - py) * ny for (px, py), (nx, ny) in zip(corners, outward, strict=True)]
            return np.max(sides, 0)

        self._paint(points, 0, color, opacity, distance)


def _turned(points: Sequence[Point], angle: float, origin: Point) -> list[Point]:
    """Points around (0, 0), turned by the angle, around the origin."""
    cosine, sine = np.cos(angle), np.sin(angle)
    return [(origin[0] + cosine * x - sine * y, origin[1] + sine * x + cosine * y) for x, y in points]


def _flag(canvas: _Canvas, foot: Point, height: float) -> None:
    x, y = foot
    tip = x + 0.55 * height
    canvas.polygon([(x, y - height), (tip, y - 0.8 * height), (x, y - 0.58 * height)], (214, 57, 57))
    canvas.line([(x, y), (x, y - height)], max(2.0, height / 18), INK)


@functools.cache
def _river() -> np.ndarray:
    """The river without the fish: banks above and below, a lagoon to the left, the spring to the right."""
    width, height = 600, 300
    x, y = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    top, bottom = 62 + 7 * np.sin(x / 57) + 4 * np.sin(x / 23 + 1), 238 + 6 * np.sin(x / 49 + 2) + 4 * np.sin(x / 19)
    depth = np.minimum(y - top, bottom - y)
    water = _mix((33, 104, 158), (116, 196, 222), 0.15 + 0.55 * x / width - depth / 400)
    grass = _mix((126, 176, 92), (96, 150, 76), -depth / 70 + 0.1 * np.sin(x / 9) * np.sin(y / 7))
    sand = np.full_like(water, (226, 208, 158))
    image = np.where((depth > 0)[..., None], water, np.where((depth > -9)[..., None], sand, grass))
    # Bright water up at the spring, still and green down in the lagoon: where the rewards are.
    ends = 0.6 * (depth > 0) * np.clip((np.abs(x - width / 2) - 208) / 16, 0, 1)
    image += ends[..., None] * (_mix((112, 176, 120), WHITE, x / width) - image)
    canvas = _Canvas(image)
    scatter = np.random.default_rng(3)
    for _ in range(46):
        px, py, length = scatter.uniform(95, 505), scatter.uniform(86, 214), scatter.uniform(10, 34)
        canvas.line([(px, py), (px + length, py + scatter.uniform(-2, 2))], 1.6, WHITE, 0.28)
    for _ in range(30):
        canvas.disc((scatter.uniform(522, 598), scatter.uniform(80, 222)), scatter.uniform(2, 6), WHITE, 0.55)
    for _ in range(15):
        tree = scatter.uniform(10, 590), scatter.choice([scatter.uniform(6, 34), scatter.uniform(266, 294)])
        canvas.disc((tree[0] + 3, tree[1] + 4), 13, INK, 0.18)
        canvas.disc(tree, 13, (60, 118, 66))
        canvas.disc((tree[0] - 3, tree[1] - 3), 7, (92, 152, 84))
    for x, size in (22, 6), (574, 20):
        for share, color in (1.0, (214, 154, 30)), (0.88, GOLD), (0.6, (255, 222, 120)):
            canvas.disc((x, 150), share * size, color)
    return canvas.pixels()


def river_swim(trail: Sequence[np.ndarray]) -> np.ndarray:
    """The fish in its river: the small reward to the left, the large one to the right."""
    places = [40 + 520 * (1 - float(observation[0])) for observation in trail[-2:]]
    x, y = places[-1], 150 + 14 * np.sin(0.7 * len(trail))
    facing = -1 if x < places[0] else 1
    canvas = _Canvas(_river())

    def at(points: Sequence[Point]) -> list[Point]:
        return [(x + facing * dx, y + dy) for dx, dy in points]

    canvas.line(at([(-14, 17), (14, 17)]), 8, INK, 0.15)
    canvas.polygon(at([(-14, 0), (-31, -12), (-26, 0)]), (222, 96, 36))
    canvas.polygon(at([(-14, 0), (-31, 12), (-26, 0)]), (222, 96, 36))
    canvas.polygon(at([(-7, -8), (9, -9), (-5, -19)]), (222, 96, 36))
    for half, thickness, color in (13, 15, (222, 96, 36)), (11, 18, (245, 130, 48)), (7, 21, (245, 130, 48)):
        canvas.line(at([(-half, 0), (half, 0)]), thickness, color)
    for stripe in 2, -9:
        canvas.line(at([(stripe, -8), (stripe, 8)]), 3.5, WHITE, 0.9)
    [eye] = at([(13, -3)])
    canvas.disc(eye, 3.6, WHITE)
    canvas.disc((eye[0] + facing, eye[1]), 1.9, INK)
    return canvas.pixels()


def _in_square(x: float, y: float) -> Point:
    """Where a point of Puddle World's unit square is in its picture."""
    return 20 + 360 * float(x), 380 - 360 * float(y)


@functools.cache
def _puddles() -> np.ndarray:
    """Puddle World without the walker; the darker the water, the more it hurts."""
    pixels = np.arange(400) + 0.5
    x, y = np.meshgrid((pixels - 20) / 360, (380 - pixels) / 360)
    place = np.stack([x, y], -1)
    offsets = place[..., None, :] - np.clip(place[..., None, :], PUDDLES_LOW, PUDDLES_HIGH)
    distances = np.sqrt(np.sum(offsets**2, -1))
    depth = np.sum(np.maximum(RADIUS - distances, 0), -1) / RADIUS
    checks = (np.floor(x * 10) + np.floor(y * 10)) % 2
    image = _mix((238, 242, 224), (230, 236, 213), checks)
    shore = np.clip((RADIUS - np.min(distances, -1)) * 360 + 0.5, 0, 1)[..., None]
    image += shore * (_mix((140, 196, 230), (22, 58, 122), depth / 1.3) - image)
    image = np.where((np.abs(place - 0.5).max(-1) > 0.5)[..., None], np.array((104, 122, 84), np.float32), image)
    canvas = _Canvas(image)
    canvas.polygon([_in_square(*corner) for corner in [(GOAL, GOAL), (1, GOAL), (1, 1), (GOAL, 1)]], GOLD)
    (left, bottom), (right, top) = START_LOW, START_HIGH
    corners = [_in_square(*corner) for corner in [(left, bottom), (right, bottom), (right, top), (left, top)]]
    for (x0, y0), (x1, y1) in zip(corners, corners[1:] + corners[:1], strict=True):
        for dash in range(8):
            near, far = (dash + 0.2) / 8, (dash + 0.7) / 8
            ends = [(x0 + share * (x1 - x0), y0 + share * (y1 - y0)) for share in (near, far)]
            canvas.line(ends, 1.6, (120, 134, 96))
    _flag(canvas, _in_square((1 + GOAL) / 2, (1 + GOAL) / 2), 26)
    return canvas.pixels()


def puddle_world(trail: Sequence[np.ndarray], *, step_size: float = 0.05) -> np.ndarray:
    """The walker and its last steps between the start (dashed), the puddles and the goal (flag)."""
    del step_size
    canvas = _Canvas(_puddles())
    steps = [_in_square(*observation) for observation in trail[-40:]]
    for age, (start, end) in enumerate(zip(steps[-2::-1], steps[:0:-1], strict=True)):
        canvas.line([start, end], 2.4, (190, 60, 50), 0.85 * (1 - age / 40))
    x, y = steps[-1]
    canvas.disc((x + 1.5, y + 2.5), 9, INK, 0.25)
    canvas.disc((x, y), 9, WHITE)
    canvas.disc((x, y), 7, (224, 72, 56))
    canvas.disc((x - 2, y - 2), 2.2, WHITE, 0.6)
    return canvas.pixels()


def _on_the_hill(x: float | np.ndarray) -> tuple[Any, Any]:
    """Where Mountain Car's road is in its picture."""
    return 300 + 300 * (x - (LEFT + RIGHT) / 2), 235 - 135 * np.sin(3 * x)


@functools.lru_cache(maxsize=4)
def _hills(goal: float) -> np.ndarray:
    """The valley and the flag, without the car."""
    width, height = 600, 400
    x, y = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    image = _mix((146, 200, 236), (240, 248, 252), y / 300)
    sun = np.hypot(x - 245, y - 75)
    image += np.clip(1 - sun / 120, 0, 1)[..., None] ** 2 * (np.array((255, 244, 200), np.float32) - image)
    for base, color, phase in (190, (176, 202, 214), 0.0), (235, (146, 182, 180), 2.0):
        ridge = base + 34 * np.sin(x / 67 + phase) + 16 * np.sin(x / 29 + 2 * phase)
        image += np.clip(y - ridge, 0, 1)[..., None] * (np.array(color, np.float32) - image)
    road = _on_the_hill((x - 300) / 300 + (LEFT + RIGHT) / 2)[1]
    # The depth below a steep road is less than the height to it.
    depth = (y - road) / np.hypot(1, np.gradient(road[0])[None])
    image += np.clip(depth + 0.5, 0, 1)[..., None] * (_mix((112, 164, 84), (58, 98, 66), depth / 110) - image)
    image += np.clip(2.6 - np.abs(depth), 0, 1)[..., None] * (np.array((70, 74, 70), np.float32) - image)
    canvas = _Canvas(image)
    canvas.disc((245, 75), 24, (255, 232, 150))
    for cloud in (95, 62), (430, 48):
        for dx, dy, radius in (0, 0, 15), (19, -7, 18), (40, 0, 14), (20, 4, 14):
            canvas.disc((cloud[0] + dx, cloud[1] + dy), radius, WHITE, 0.8)
    _flag(canvas, _on_the_hill(goal), 46)
    return canvas.pixels()


def mountain_car(trail: Sequence[np.ndarray], *, goal: float = 0.6, time_limit: int = 10_000) -> np.ndarray:
    """The car in its valley, the faster the longer the lines behind it, and the flag at the goal."""
    del time_limit
    position = LEFT + (RIGHT - LEFT) * float(trail[-1][0])
    speed = MAX_SPEED * (2 * float(trail[-1][1]) - 1)
    slope = np.arctan2(-135 * 3 * np.cos(3 * position), 300)
    road = _on_the_hill(position)
    canvas = _Canvas(_hills(float(goal)))

    def at(*points: Point) -> list[Point]:
        return _turned(points, slope, road)

    behind = -np.sign(speed)
    for height, length in (-12, 1.0), (-18, 0.7), (-24, 0.85):
        start = 30 * behind
        canvas.line(at((start, height), (start + 450 * length * abs(speed) * behind, height)), 2, WHITE, 0.8)
    canvas.line(at((-20, -3), (20, -3)), 5, INK, 0.25)
    canvas.polygon(at((-13, -20), (-8, -32), (7, -32), (14, -20)), (184, 44, 44))
    canvas.polygon(at((-9, -21), (-6, -29), (-1, -29), (-1, -21)), (206, 232, 244))
    canvas.polygon(at((1, -21), (1, -29), (5, -29), (10, -21)), (206, 232, 244))
    canvas.line(at((-18, -15), (18, -15)), 13, (214, 57, 57))
    canvas.line(at((20, -16), (22, -16)), 4, GOLD)
    for wheel in at((-12, -7), (12, -7)):
        canvas.disc(wheel, 7.5, INK)
        canvas.disc(wheel, 3.2, (200, 206, 210))
    return canvas.pixels()


@functools.lru_cache(maxsize=4)
def _sea(size: int) -> np.ndarray:
    """The grid without the diver: water where it can get, rock where it cannot, the treasure at the bottom."""
    places = (np.arange(400) + 0.5) * size / 400
    column, row = np.meshgrid(places, places)
    water = _mix((124, 206, 232), (14, 44, 104), np.floor(row) / max(size - 1, 1))
    rock = _mix((150, 134, 116), (84, 74, 70), row / size + 0.06 * np.sin(column * 1.3 + row * 2.1))
    image = np.where((np.floor(column) <= np.floor(row))[..., None], water, rock)
    edge = np.minimum(np.minimum(column % 1, -column % 1), np.minimum(row % 1, -row % 1)) * 400 / size
    lines = 0.22 * np.clip(1.1 - edge, 0, 1) * np.minimum(1, 20 / size) * (np.floor(column) <= np.floor(row))
    canvas = _Canvas(image + lines[..., None] * (255 - image))
    unit = max(400 / size, 14)
    x, y = 400 - 200 / size, 400 - unit * 0.08
    x = min(x, 400 - unit / 2)
    canvas.disc((x, y - unit * 0.3), unit * 0.8, GOLD, 0.18)
    half, lid = unit * 0.34, unit * 0.34
    canvas.polygon([(x - half, y), (x + half, y), (x + half, y - lid), (x - half, y - lid)], (132, 82, 40))
    canvas.line([(x - half * 0.75, y - lid), (x + half * 0.75, y - lid)], unit * 0.3, (162, 102, 50))
    canvas.line([(x - half, y - lid), (x + half, y - lid)], max(1.5, unit * 0.07), GOLD)
    canvas.disc((x, y - lid), max(1.5, unit * 0.09), GOLD)
    return canvas.pixels()


def deep_sea(trail: Sequence[np.ndarray], *, size: int = 10) -> np.ndarray:
    """The diver and the way down that it took."""
    rows, columns = np.tril_indices(size)
    cells = [int(np.argmax(observation)) for observation in trail]
    unit = 400 / size
    way = [((columns[cell] + 0.5) * unit, (rows[cell] + 0.5) * unit) for cell in cells]
    canvas = _Canvas(_sea(size))
    for x, y in way:
        square = [(x - unit / 2, y - unit / 2), (x + unit / 2, y - unit / 2), (x + unit / 2, y + unit / 2)]
        canvas.polygon([*square, (x - unit / 2, y + unit / 2)], WHITE, 0.28)
    for start, end in itertools.pairwise(way):
        canvas.line([start, end], max(1.5, unit * 0.08), WHITE, 0.7)
    (x, y), radius = way[-1], max(unit * 0.34, 6)
    canvas.disc((x, y), radius, (60, 50, 20))
    canvas.disc((x, y), radius * 0.9, (246, 190, 60))
    canvas.disc((x, y + radius * 0.08), radius * 0.56, (60, 50, 20))
    canvas.disc((x, y + radius * 0.08), radius * 0.46, (168, 222, 240))
    canvas.disc((x - radius * 0.16, y - radius * 0.08), radius * 0.14, WHITE, 0.9)
    return canvas.pixels()


PICTURES: dict[str, Callable[..., np.ndarray]] = {
    "RiverSwim": river_swim,
    "PuddleWorld": puddle_world,
    "SparseMountainCar": mountain_car,
    "DeepSea": deep_sea,
}
