"""`python -m wonderland` is the command `wonderland`."""

import sys

from wonderland.cli import main

if __name__ == "__main__":
    sys.exit(main())
