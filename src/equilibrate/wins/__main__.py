"""`python -m equilibrate.wins`, the same as `equilibrate wins`."""

import sys

from equilibrate.wins.command import main

if __name__ == "__main__":
    sys.exit(main())
