"""`python -m equilibrate`: the same as `equilibrate`."""

import sys

from equilibrate.cli import main

if __name__ == "__main__":
    sys.exit(main())
