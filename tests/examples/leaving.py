"""Run a module as `python -m` does, then leave at once.

Where gloo was used, torch may abort an ordinary exit (seen with torch's own SGD too), and torchrun
would count that as a failure of what had ended well.
"""

import os
import runpy
import sys
import traceback

if __name__ == "__main__":
    code = 0
    sys.argv = sys.argv[1:]
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
