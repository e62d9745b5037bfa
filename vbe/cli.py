"""The command line: thin. Parse, call, print."""

import argparse
import ast
import dataclasses
import hashlib
import inspect
import json
import sys
from pathlib import Path
from typing import Any, NoReturn

from vbe.options import check_name
from vbe.types import UsageError

EXAMPLES = """examples:
  vbe train --environment DeepSea --environment-options size=20 --agent vbe --agent-options ensemble_size=1 pure_exploration=true
  vbe train --environment RiverSwim --agent vbe --agent-options bonus_scale=1,3,10 ensemble_size=1,20 --seeds 30 --out runs/sweep

A value with commas is a sweep: one run per value and seed. `vbe list` shows every option. Ctrl-C saves; the same command continues."""


COMMANDS = ("train", "list", "bench")


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage of all there is."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{' '.join(message.split())}; `{self.prog} --help` shows what there is")


def main(arguments: list[str] | None = None) -> int:
    """Runs a command; returns its exit status: 0, 2 for bad input (one line on stderr), 130 after Ctrl-C."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = make_parser()
    try:
        if arguments and not arguments[0].startswith("-"):
            check_name("command", arguments[0], COMMANDS)
        chosen = parser.parse_args(arguments)
        if chosen.command is None:
            parser.print_help()
        else:
            chosen.run(chosen)
    except UsageError as error:
        print(f"vbe: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        print(f"\nvbe: {stop or 'stopped'}", file=sys.stderr)
        return 130
    return 0


def make_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="vbe", description="Value bonuses for exploration in value-based deep reinforcement learning.")
    commands = parser.add_subparsers(dest="command", title="commands")

    raw = argparse.RawDescriptionHelpFormatter
    train = commands.add_parser(
        "train", help="train an agent, with any options swept, over any number of seeds", epilog=EXAMPLES, formatter_class=raw
    )
    train.add_argument("--environment", required=True, metavar="NAME", help="RiverSwim, PuddleWorld, SparseMountainCar or DeepSea")
    train.add_argument("--agent", required=True, metavar="NAME", help="`vbe list` names them")
    train.add_argument("--environment-options", nargs="*", default=[], metavar="KEY=VALUE", help="such as size=20")
    train.add_argument("--agent-options", nargs="*", default=[], metavar="KEY=VALUE", help="such as ensemble_size=1,20 bonus_scale=3")
    train.add_argument("--seeds", default="1", metavar="N", help="how many (0, 1, ...), or a list such as 3,5,8 (default: 1)")
    train.add_argument("--steps", type=int, default=50_000, metavar="N", help="environment steps of each run (default: 50000)")
    train.add_argument("--out", metavar="FOLDER", help="for results and checkpoints (default: runs/ENVIRONMENT-AGENT-...)")
    train.add_argument("--log-every", type=int, metavar="N", help="steps between rows of results (default: a hundredth of the steps)")
    train.add_argument(
        "--checkpoint-seconds", type=float, default=60.0, metavar="S", help="the least time between checkpoints (default: 60)"
    )
    train.add_argument("--devices", type=int, metavar="N", help="how many devices to use (default: all)")
    train.set_defaults(run=_train)

    listing = commands.add_parser("list", help="environments and agents, their options and defaults")
    listing.add_argument("name", nargs="?", help="one environment or agent only")
    listing.set_defaults(run=_list)

    bench = commands.add_parser("bench", help="measure speed on this machine, as ratios within one run")
    bench.add_argument("--quick", action="store_true", help="one short round: within about three minutes")
    bench.add_argument("--json", metavar="FILE", help="write the measurements there too")
    bench.add_argument("--markdown", metavar="FILE", help="write the tables there too, between the markers of a document that has them")
    bench.add_argument("--peers-python", metavar="PATH", help="a Python that has the peers installed (default: this one)")
    bench.set_defaults(run=_bench)
    return parser


def _train(chosen: argparse.Namespace) -> None:
    from vbe.training.train import train

    asked: dict[str, Any] = {
        "environment": chosen.environment,
        "agent": chosen.agent,
        "environment_options": _options("--environment-options", chosen.environment_options),
        "agent_options": _options("--agent-options", chosen.agent_options),
        "seeds": _value(chosen.seeds),
        "steps": chosen.steps,
        "log_every": chosen.log_every,
    }
    out = Path(chosen.out) if chosen.out is not None else _default_folder(asked)
    results = train(**asked, out=out, checkpoint_seconds=chosen.checkpoint_seconds, devices=chosen.devices, progress=True)
    _show(results.table, out)


def _show(table: Any, out: Path) -> None:
    from vbe.analysis import draw_curves, summarise
    from vbe.analysis.report import print_summary

    summary = summarise(table)
    print_summary(summary)
    summary.write_csv(out / "summary.csv")
    picture = draw_curves(table, out / "curves.png")
    print(f"picture: {picture}\nsummary: {out / 'summary.csv'}\nresults: {out / 'results.parquet'}")


def _default_folder(asked: dict[str, Any]) -> Path:
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True, default=repr).encode()).hexdigest()[:8]
    return Path("runs") / f"{asked['environment']}-{asked['agent']}-{digest}"


def _options(argument: str, pairs: list[str]) -> dict[str, Any]:
    options = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"{argument} {pair!r}: must be key=value, or key=value,value to sweep")
        if name in options:
            raise UsageError(f"{argument} {pair!r}: {name} is given twice; sweep it as {name}=value,value")
        options[name] = _value(text)
    return options


def _value(text: str) -> Any:
    """A Python literal, true/false/none, a list for values with commas outside brackets, or else the text itself."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    values = [_literal(part.strip()) for part in parts]
    return values if len(values) > 1 else values[0]


def _literal(text: str) -> Any:
    named = {"true": True, "false": False, "none": None}
    if text.lower() in named:
        return named[text.lower()]
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text
    return value if isinstance(value, (int, float, str, tuple, list)) else text  # no option is anything else


def _list(chosen: argparse.Namespace) -> None:
    from rich.console import Console
    from rich.table import Table

    from vbe import environments
    from vbe.agents import AGENTS

    if chosen.name is not None:
        check_name("name", chosen.name, [*environments.ENVIRONMENTS, *AGENTS])
    console = Console()
    for name, factory in environments.ENVIRONMENTS.items():
        if chosen.name in (None, name):
            table = Table("option", "default", title=f"environment {name}", title_justify="left", title_style="bold", min_width=60)
            for parameter in inspect.signature(factory).parameters.values():
                table.add_row(parameter.name, str(parameter.default))
            console.print(table, f"features: {', '.join(environments.FEATURES.get(name, ['raw']))} (the first by default)\n")
    for name, recipe in AGENTS.items():
        if chosen.name in (None, name):
            table = Table("option", "default", "meaning", title=f"agent {name}: {recipe.summary}", title_justify="left", title_style="bold")
            for field in dataclasses.fields(recipe.options):
                choices = field.metadata["choices"]
                meaning = field.metadata["help"] + (f" ({', '.join(map(str, choices))})" if choices else "")
                table.add_row(field.name, "" if field.default is None else str(field.default), meaning)
            console.print(table, "")


def _bench(chosen: argparse.Namespace) -> None:
    from vbe.bench import main

    main(quick=chosen.quick, json_file=chosen.json, markdown_file=chosen.markdown, peers_python=chosen.peers_python)


if __name__ == "__main__":
    sys.exit(main())
