"""`python -m equilibrate.paper`: train the demonstration and draw it."""

import argparse
from pathlib import Path

from equilibrate.paper import demonstration


def main() -> None:
    """Compute what is not recorded yet, then draw."""
    parser = argparse.ArgumentParser(prog="python -m equilibrate.paper", description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=Path("out"), help="folder of records and figure"
    )
    out = parser.parse_args().out
    settings = demonstration.Settings()
    records = demonstration.compute(settings, out)
    for path in demonstration.draw(settings, records, out):
        print(f"figure: {path.resolve()}")


if __name__ == "__main__":
    main()
