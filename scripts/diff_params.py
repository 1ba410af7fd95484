"""`x-script diff_params` as a plain file. Its arguments: `x-script diff_params --help`."""

import sys

from xdpx.run import main

if __name__ == "__main__":
    sys.exit(main(["x-script", "diff_params", *sys.argv[1:]]))
