#!/usr/bin/env bash
# Send commands to PAI through odpscmd:
#   bash pai.sh x-train config.hjson [x-train config2.hjson ...] [-v 131] [-w 1] [-g 2] [-c 4] [-m 10] [-s y] [-t odps://...]
# `bash pai.sh --help` explains the flags; xdpx/commands/pai.py does the work.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 1
export PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"
exec "${PYTHON:-python3}" -m xdpx.commands.pai "$@"
