"""`x-script gather_shards` as a plain file. Its arguments: `x-script gather_shards --help`."""

import sys

from xdpx.run import main

if __name__ == "__main__":
    sys.exit(main(["x-script", "gather_shards", *sys.argv[1:]]))
