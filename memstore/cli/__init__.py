"""The command line: each command parses, makes one call of the library, and formats the answer."""

import io
import sys


def main() -> None:
    """Run ``memstore``. Exit codes: 0 done, 1 it failed or found nothing of that id, 2 wrong use, 130 stopped.

    Output is UTF-8 whatever the locale says: JSON is, and a terminal that cannot show a character is better
    than a program that stops at it. Every lone surrogate leaves as an escape, which JSON allows.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    from memstore.cli.app import cli

    cli(prog_name="memstore")
