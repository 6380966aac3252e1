"""The command line: `equilibrate paper` recomputes the paper's figures and judges its claims."""

import argparse
import shlex
import sys
from collections.abc import Sequence

from equilibrate.paper import command


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the arguments, run the command they name, return the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="equilibrate", description=__doc__)
    commands = parser.add_subparsers(dest="name", required=True, metavar="COMMAND")
    paper = commands.add_parser(
        "paper",
        help="compute the figures, judge the claims, write the report",
        description=command.DESCRIPTION,
    )
    command.add_arguments(paper)
    return command.execute(parser.parse_args(given), shlex.join(["equilibrate", *given]))


if __name__ == "__main__":
    sys.exit(main())
