"""The `peregrine` program."""

import sys

from ._native_part import check


def main() -> int:
    """Runs the program with the arguments of this process; returns its exit code."""
    check()
    from ._native import main as program

    return program(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
