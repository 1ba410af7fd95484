"""Write docstrings of Python's standard library, labelled by topic: a small real data set that every machine has.

Usage: python stdlib_docstrings.py OUTPUT_FOLDER
"""

from xdpx.commands.stdlib_docstrings import main

if __name__ == "__main__":
    main()
