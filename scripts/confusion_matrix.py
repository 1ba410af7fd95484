"""`x-script confusion_matrix` as a plain file. Its arguments: `x-script confusion_matrix --help`."""

import sys

from xdpx.run import main

if __name__ == "__main__":
    sys.exit(main(["x-script", "confusion_matrix", *sys.argv[1:]]))
