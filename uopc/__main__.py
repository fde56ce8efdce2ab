"""`python -m uopc` is the same as the command `uopc`."""

import sys

from uopc.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
