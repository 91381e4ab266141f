"""The one place where errors become exit codes and messages."""

import logging
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click

from memstore.canonical import check_encodable
from memstore.errors import InvalidInput, MemstoreError

FAILED = 1
WRONG_USE = 2
INTERRUPTED = 130
"""128 + SIGINT, as shells count it."""

_DEBUG = "memstore.debug"
_ARGUMENTS = "memstore.arguments"

_TABLE: tuple[tuple[type[Exception], int], ...] = (
    (InvalidInput, WRONG_USE),
    (MemstoreError, FAILED),
    (OSError, FAILED),  # a file that cannot be read or written is no bug
)
"""The first line that fits decides; what fits none is a bug."""


class Commands(click.Group):
    """The group: whatever a command raises ends as a line on stderr and an exit code."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            _check_arguments(ctx.meta[_ARGUMENTS])
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise  # click ends these itself
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except Exception as error:  # noqa: BLE001 - the last place that can say what happened
            ctx.exit(_report(error, debug=ctx.meta.get(_DEBUG, False)))


def _check_arguments(arguments: Sequence[str]) -> None:
    for number, argument in enumerate(arguments, 1):
        check_encodable(argument, f"argument {number} of the command line")


def _report(error: Exception, *, debug: bool) -> int:
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    for kind, code in _TABLE:
        if isinstance(error, kind):
            click.echo(f"memstore: {error}", err=True)
            return code
    click.echo(
        f"memstore: {type(error).__name__}: {error}\n"
        "this is a bug, please report it (the option --debug shows where it happened)",
        err=True,
    )
    return FAILED


def switch_debug_on(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    """The callback of ``--debug``."""
    if value:
        ctx.meta[_DEBUG] = True


class _Stderr(logging.Handler):
    """Asks for stderr at each record: it may have been replaced since."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(f"memstore: {record.levelname.lower()}: {record.getMessage()}", err=True)


def log_to_stderr() -> None:
    """Warnings of the library go to stderr; stdout carries the answer alone."""
    logger = logging.getLogger("memstore")
    if not any(isinstance(handler, _Stderr) for handler in logger.handlers):
        logger.addHandler(_Stderr(logging.WARNING))
