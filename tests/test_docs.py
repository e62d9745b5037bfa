"""Documents that cannot rot: their examples run, their commands parse, their links lead somewhere, their tables are true."""

import argparse
import ast
import dataclasses
import doctest
import importlib
import importlib.util
import pkgutil
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax
import numpy as np
import pytest

import vbe
from vbe import cli
from vbe.agents import AGENTS
from vbe.environments import ENVIRONMENTS
from vbe.options import check_name
from vbe.training.lanes import Record
from vbe.training.records import METRICS, Recorder
from vbe.training.spec import make_spec, programs

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
MOST_STEPS = 400  # of a training run in an example: more than a warm-up, less than a second


@pytest.fixture(scope="module", autouse=True)
def compiled_in_a_hurry() -> Iterator[None]:
    """Examples run once, so compiling well is wasted on them. What was compiled so is forgotten before other tests run."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()


class Block(NamedTuple):
    page: Path
    line: int  # of its first line of code, counted from 1
    language: str
    text: str


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    found = re.finditer(r"^```(\S*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(page, text.count("\n", 0, match.start(2)) + 1, match[1], match[2]) for match in found]


def prose(page: Path) -> str:
    return re.sub(r"^```\S*\n.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


BLOCKS = [block for page in PAGES for block in blocks(page)]
PYTHON = [block for block in BLOCKS if block.language == "python"]
SHELL = [block for block in BLOCKS if block.language == "sh"]
COMMANDS = [(block, line) for block in SHELL for line in block.text.replace("\\\n", " ").splitlines() if line.strip()]


def test_there_is_something_to_test() -> None:
    assert len(PYTHON) >= 10 and len(COMMANDS) >= 10 and len(PAGES) >= 10


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_code_is_marked_in_a_way_that_is_tested(page: Path) -> None:
    assert len(re.findall(r"^```", page.read_text(), re.MULTILINE)) == 2 * len(blocks(page)), "a fence is left open, or indented"
    for block in blocks(page):
        assert block.language not in ("py", "python3", "pycon", "bash", "shell", "console"), f"line {block.line}: say python or sh"


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: f"{name(block.page)}:{block.line}")
def test_examples_run(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = vbe.train

    def train_briefly(**arguments: Any) -> vbe.Results:
        return train(**{**arguments, "steps": min(arguments.get("steps", MOST_STEPS), MOST_STEPS), "seeds": 1})

    monkeypatch.setattr(vbe, "train", train_briefly)
    monkeypatch.chdir(tmp_path)
    # Blank lines before it give errors the page's own line numbers.
    code = compile("\n" * (block.line - 1) + block.text, name(block.page), "exec")
    with mock.patch.dict(AGENTS), mock.patch.dict(ENVIRONMENTS):
        exec(code, {"__name__": "example"})


def modules() -> Iterator[str]:
    for module in pkgutil.walk_packages(vbe.__path__, "vbe."):
        if module.name != "vbe.__main__":  # it runs when it is imported
            yield module.name


@pytest.mark.parametrize("module", ["vbe", *modules()])
def test_examples_in_docstrings_are_true(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0, "see the captured output"


def asked_of_train(chosen: argparse.Namespace) -> dict[str, Any]:
    """What `vbe train` hands on to `vbe.train`."""
    with mock.patch("vbe.training.train.train") as train, mock.patch.object(cli, "_show"):
        chosen.run(chosen)
    return train.call_args.kwargs


@pytest.mark.parametrize(("block", "line"), COMMANDS, ids=[f"{name(block.page)}: {line}" for block, line in COMMANDS])
def test_commands_can_be_given(block: Block, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(line, comments=True)
    match words:
        case ["vbe", *arguments]:
            try:
                chosen = cli.make_parser().parse_args(arguments)
            except SystemExit as end:
                if end.code != 0:
                    pytest.fail(capsys.readouterr().err)
                return
            if chosen.command == "train":
                fields = {"environment", "agent", "environment_options", "agent_options", "seeds", "steps", "log_every"}
                make_spec(**{key: value for key, value in asked_of_train(chosen).items() if key in fields})
            if chosen.command == "list" and chosen.name is not None:
                check_name("name", chosen.name, [*ENVIRONMENTS, *AGENTS])
        case ["make", *targets]:
            known = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
            assert set(targets) <= set(known)
        case [command, "-m", module, *_] if command.split("/")[-1].startswith("python"):
            assert module.split(".")[0] != "vbe" or importlib.util.find_spec(module) is not None
        case [command, script, *_] if command.split("/")[-1].startswith("python"):
            assert (ROOT / script).is_file()


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    lost = []
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", prose(page))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or ROOT not in target.parents or (anchor and anchor not in anchors(target)):
            lost.append(link)
    assert lost == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_what_is_named_exists(page: Path) -> None:
    code = re.findall(r"`([^`\n]+)`", prose(page))
    for dotted in (found for text in code for found in re.findall(r"^(vbe(?:\.[A-Za-z_]\w*)+)", text)):
        pkgutil.resolve_name(dotted)
    paths = [text for text in code if re.fullmatch(r"(vbe|tests|docs|examples)/[\w./-]+", text) and not text.endswith("-v0")]
    assert [path for path in paths if not (ROOT / path).exists()] == []


class Table(NamedTuple):
    heading: str  # the nearest one above
    rows: list[list[str]]


def tables(page: Path, first_column: str) -> list[Table]:
    heading, found, inside = "", [], False
    for line in prose(page).splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] if line.startswith("|") else []
        if line.startswith("#"):
            heading = line
        if not cells:
            inside = False
        elif not inside:
            inside = True
            found.append(Table(heading, []))
            wanted = cells[0] == first_column
            if not wanted:
                found.pop()
        elif wanted and not set(cells[0]) <= set("-: "):
            found[-1].rows.append(cells)
    return found


def described(agent: str) -> dict[str, tuple[str, str]]:
    """Default and meaning of each option of an agent, as the pages say it: those shared, then those in tables under its name."""
    shared, own = {}, {}
    for page in PAGES:
        for table in tables(page, "option"):
            rows = {row[0].strip("`"): (row[1].strip("`"), row[2]) for row in table.rows}
            assert len(rows) == len(table.rows), f"{name(page)}: an option is there twice"
            for_all = table.heading == "## Options of every agent"
            if for_all or (table.heading == "## Options of value-based agents" and not AGENTS[agent].on_policy):
                shared |= rows
            elif f"`{agent}`" in table.heading:
                own |= rows
    assert own, "no table of its own"
    return shared | own


@pytest.mark.parametrize("agent", AGENTS)
def test_tables_of_options_are_true(agent: str) -> None:
    fields = {field.name: field for field in dataclasses.fields(AGENTS[agent].options)}
    said = described(agent)
    assert said.keys() == fields.keys()
    for option, (default, meaning) in said.items():
        value = ast.literal_eval(default)
        assert (value, type(value)) == (fields[option].default, type(fields[option].default)), option
        assert all(f'`"{choice}"`' in meaning for choice in fields[option].metadata["choices"] or ()), option


def test_every_table_of_options_is_somebodys() -> None:
    for page in PAGES:
        for table in tables(page, "option"):
            named = re.findall(r"`([^`]+)`", table.heading)
            assert set(named) <= set(AGENTS), f"{name(page)}: {table.heading}"
            assert named or table.heading in ("## Options of every agent", "## Options of value-based agents"), name(page)


def test_the_index_of_methods_has_every_page_and_agent() -> None:
    folder = ROOT / "docs" / "methods"
    index = (folder / "README.md").read_text()
    for page in folder.glob("*.md"):
        assert page.name == "README.md" or f"]({page.name})" in index
    assert all(f"`{agent}`" in index for agent in AGENTS)


def imported(file: Path) -> set[str]:
    """The modules of the library that a file imports, at its top or further in."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "vbe":
            found |= {f"vbe.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return {module for module in found if module.split(".")[0] == "vbe"}


def test_rooms_use_what_the_page_says() -> None:
    [table] = tables(ROOT / "docs" / "architecture.md", "room")
    rows = [[path.removesuffix(".py").rstrip("/").replace("/", ".") for path in re.findall(r"`(.*?)`", row[0])] for row in table.rows]

    def row_of(module: str) -> int:
        """What is in no room stands with the last, the command line: nobody else may use it."""
        named = [i for i, rooms in enumerate(rows) for room in rooms if f"{module}.".startswith(f"{room}.")]
        return named[0] if named else len(rows) - 1

    for file in sorted((ROOT / "vbe").rglob("*.py")):
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if module in ("vbe", "vbe.__main__"):  # the house itself
            continue
        own = row_of(module)
        for other in imported(file):
            used = row_of(other)
            assert used <= own, f"{module} uses {other}"
            assert table.rows[own][2] != "itself" or used == own, f"{module} uses {other}"


def test_the_table_of_results_is_described() -> None:
    page = ROOT / "docs" / "architecture.md"
    [metrics], [columns] = tables(page, "metric"), tables(page, "column")
    assert [row[0].strip("`") for row in metrics.rows] == list(METRICS)
    spec = make_spec(environment="DeepSea", agent="vbe", steps=3)
    ends = np.array([[False, False, True]])
    record = Record(np.zeros((1, 3)), ends, ~ends, *(np.zeros((1, 3)) for _ in range(3)))
    table = Recorder(spec, programs(spec)[0]).add(0, record, learning=True)
    assert [(row[0].strip("`"), row[1]) for row in columns.rows] == [(c, str(t).split("(")[0]) for c, t in table.schema.items()]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_nothing_is_left_to_be_filled_in(page: Path) -> None:
    assert not re.search(r"^\[[A-Z]{3,}|\[FINDINGS|TODO|TBD", page.read_text(), re.MULTILINE)
