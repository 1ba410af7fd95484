"""`x-script cut_file` as a plain file. Its arguments: `x-script cut_file --help`."""

import sys

from xdpx.run import main

if __name__ == "__main__":
    sys.exit(main(["x-script", "cut_file", *sys.argv[1:]]))
