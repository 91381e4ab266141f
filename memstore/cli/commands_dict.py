"""The team's dictionary: dict add, list, remove."""

import click

from memstore.cli.options import Target, with_target
from memstore.cli.output import show
from memstore.cli.progress import progress

RESUMES = "The dictionary is as it was; run the same command again to go on from there."


@click.group("dict")
def dictionary() -> None:
    """Chinese words of the team that segmentation keeps whole: names, products, terms.

    \b
    Example:
      memstore dict add 知识图谱 向量数据库 --db memory.db --user lin
    """


@dictionary.command("add")
@click.argument("words", nargs=-1, required=True, metavar="WORD…")
@click.option(
    "--frequency", type=int, metavar="N", help="How strongly to keep them whole; computed if not given."
)
@with_target
def add_words(target: Target, *, words: tuple[str, ...], frequency: int | None) -> None:
    """Add words, and segment the texts that hold them anew. Only an admin of the team may.

    \b
    Examples:
      memstore dict add 知识图谱 --db memory.db --user lin
      memstore dict add 深度求索 --frequency 5000 --db memory.db --user lin
    """
    given = list(words) if frequency is None else dict.fromkeys(words, frequency)
    scope = target.asker()
    with target.open(create=True) as store, progress("segmenting", when_stopped=RESUMES) as report:
        result = store.add_words(scope, given, report)
    show(target, "record", result)


@dictionary.command("list")
@with_target
def list_words(target: Target) -> None:
    """The words of the team's dictionary.

    \b
    Example:
      memstore dict list --db memory.db --user lin --format text
    """
    with target.open() as store:
        found = store.words(target.asker())
    show(target, "words", {"words": found})


@dictionary.command("remove")
@click.argument("words", nargs=-1, required=True, metavar="WORD…")
@with_target
def remove_words(target: Target, *, words: tuple[str, ...]) -> None:
    """Take words out again. Only an admin of the team may.

    \b
    Example:
      memstore dict remove 知识图谱 --db memory.db --user lin
    """
    scope = target.asker()
    with target.open() as store, progress("segmenting", when_stopped=RESUMES) as report:
        result = store.remove_words(scope, list(words), report)
    show(target, "record", result)


COMMANDS = (dictionary,)
