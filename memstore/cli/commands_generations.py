"""The operator's command for embedding generations: generations."""

import click

from memstore.cli.options import Target, with_target
from memstore.cli.output import show

LIST = "list"
ROLL_BACK = "roll-back"
DROP = "drop"


@click.command()
@click.argument("action", type=click.Choice([LIST, ROLL_BACK, DROP]), default=LIST)
@click.argument("number", type=int, required=False)
@with_target
def generations(target: Target, *, action: str, number: int | None) -> None:
    """List the embedding generations, go back to an earlier one, or drop one. No model is needed.

    roll-back switches to generation NUMBER, or to the one that was active before. Rows that it lacks are found by
    text until 'memstore index' has run with its model. drop deletes the vectors of a generation that is not active.

    \b
    Examples:
      memstore generations --db memory.db --format text
      memstore generations roll-back --db memory.db
      memstore generations roll-back 1 --db memory.db
      memstore generations drop 1 --db memory.db
    """
    if action == LIST and number is not None:
        raise click.UsageError("list takes no NUMBER: it shows every generation")
    if action == DROP and number is None:
        raise click.UsageError("which generation? 'memstore generations' lists their numbers")
    with target.open() as store:
        if action == LIST:
            show(target, "generations", {"generations": store.generations()})
        elif action == ROLL_BACK:
            show(target, "record", store.roll_back_generation(number))
        elif number is not None:
            show(target, "record", store.drop_generation(number))


COMMANDS = (generations,)
