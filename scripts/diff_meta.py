"""`x-script diff_meta` as a plain file. Its arguments: `x-script diff_meta --help`."""

import sys

from xdpx.run import main

if __name__ == "__main__":
    sys.exit(main(["x-script", "diff_meta", *sys.argv[1:]]))
