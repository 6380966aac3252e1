"""The command line: the paper's figures, compare optimizers, inspect a model, the fight."""

import argparse
import io
import shlex
import sys
from collections.abc import Sequence

from equilibrate import __version__
from equilibrate.inspect import command as inspect
from equilibrate.paper import command as paper
from equilibrate.study import arguments as compare_arguments
from equilibrate.study import command as compare
from equilibrate.wins import command as wins


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the arguments, run the command they name, return the exit status."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # where it cannot write a letter, as stderr does
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return _run(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:  # before the command itself listens to Ctrl-C
        print("equilibrate: stopped; nothing was done", file=sys.stderr)
        return 130


def _run(given: list[str]) -> int:
    parsed = make_parser().parse_args(given)
    rooms = {
        "paper": paper.execute,
        "compare": compare.execute,
        "inspect": inspect.execute,
        "wins": wins.execute,
    }
    return rooms[parsed.name](parsed, shlex.join(["equilibrate", *given]))


def make_parser(command: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the whole command line, or that of one command."""
    parser = argparse.ArgumentParser(prog="equilibrate", description=__doc__)
    parser.add_argument("--version", action="version", version=f"equilibrate {__version__}")
    commands = parser.add_subparsers(dest="name", required=True, metavar="COMMAND")
    _add_paper(commands)
    _add_compare(commands)
    _add_inspect(commands)
    _add_wins(commands)
    return commands.choices[command] if command else parser


def _add_paper(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "paper",
        help="compute the figures, judge the claims, write the report",
        description=paper.DESCRIPTION,
    )
    paper.add_arguments(parser)


def _add_compare(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "compare",
        help="compare optimizers on a problem",
        description=compare_arguments.DESCRIPTION,
        epilog=compare_arguments.epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    compare_arguments.add_arguments(parser)


def _add_inspect(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "inspect",
        help="show the curvature of a model in one report",
        description=inspect.DESCRIPTION,
    )
    inspect.add_arguments(parser)


def _add_wins(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "wins",
        help="fight against today's optimizers on today's tasks",
        description=wins.DESCRIPTION,
    )
    wins.add_arguments(parser)


if __name__ == "__main__":
    sys.exit(main())
