"""`python -m equilibrate.paper`: the same as `equilibrate paper`."""

import sys

from equilibrate.paper.command import main

if __name__ == "__main__":
    sys.exit(main())
