"""`python -m ferrax.compat`: see `ferrax._src.compat.program`."""

import sys

from ferrax._src.compat.program import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
