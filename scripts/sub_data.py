"""`x-script sub_data` as a plain file. Its arguments: `x-script sub_data --help`."""

import sys

from xdpx.run import main

if __name__ == "__main__":
    sys.exit(main(["x-script", "sub_data", *sys.argv[1:]]))
