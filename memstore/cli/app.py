"""The group ``memstore`` and its commands. Nothing heavy is imported before a command needs it."""

import click

from memstore import __version__
from memstore.cli import (
    commands_agents,
    commands_backup,
    commands_bench,
    commands_dict,
    commands_generations,
    commands_import,
    commands_read,
    commands_recall,
    commands_scenes,
    commands_upkeep,
    commands_verdicts,
    commands_work,
    commands_write,
)
from memstore.cli.failures import Commands, log_to_stderr
from memstore.cli.options import debug_option


@click.group(cls=Commands)
@click.version_option(__version__, prog_name="memstore")
@debug_option
def cli() -> None:
    """A memory store for AI agents in one SQLite file.

    Answers are JSON on stdout, messages go to stderr. Exit codes: 0 done, 1 failed, 2 wrong use.

    \b
    Example:
      export MEMSTORE_DB=memory.db MEMSTORE_USER=lin
      memstore init
      memstore add "The launch moved to Thursday"
      memstore add "会议改到周四下午"
      memstore recall "周四"
    """
    log_to_stderr()


for _module in (
    commands_write,
    commands_recall,
    commands_read,
    commands_upkeep,
    commands_work,
    commands_backup,
    commands_import,
    commands_generations,
    commands_dict,
    commands_agents,
    commands_verdicts,
    commands_scenes,
    commands_bench,
):
    for _command in _module.COMMANDS:
        cli.add_command(_command)
