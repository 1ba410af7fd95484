"""`x-script diff_data` as a plain file. Its arguments: `x-script diff_data --help`."""

import sys

from xdpx.run import main

if __name__ == "__main__":
    sys.exit(main(["x-script", "diff_data", *sys.argv[1:]]))
