"""`x-script from_maxtext` as a plain file. Its arguments: `x-script from_maxtext --help`."""

import sys

from xdpx.run import main

if __name__ == "__main__":
    sys.exit(main(["x-script", "from_maxtext", *sys.argv[1:]]))
