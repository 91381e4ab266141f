"""The oracle: is everything that was acknowledged there, and nothing that was not?

It imports nothing of memstore and runs in a process of its own:

    python oracle.py FOLDER MODE

``live``     others have the store open and write; what was acknowledged before the look began must be there
``killed``   everyone was killed and nobody opened the store since
``settled``  the store was opened after the crash and closed
``rebuilt``  ``rebuilt.db`` was made from the fallback, and must equal ``store.db``

Prints JSON: what it saw, and the violations.
"""

import json
import sys
from pathlib import Path

from check_changes import (
    check_branches,
    check_deletions,
    check_memories,
    check_sessions,
    check_titles,
    check_words,
)
from check_files import check_file, check_files, compare_rebuilt
from check_messages import check_fallback, check_order, check_said
from look import Look

CHECKS = (
    check_said, check_fallback, check_order, check_deletions, check_sessions, check_titles, check_branches,
    check_memories, check_words, check_file, check_files,
)  # fmt: skip


def main(folder: Path, mode: str) -> None:
    if mode == "rebuilt":
        print(json.dumps({"violations": list(compare_rebuilt(folder))}))
        return
    look = Look(folder, mode)
    violations = [violation for check in CHECKS for violation in check(look)]
    print(
        json.dumps(
            {
                "violations": violations,
                "messages": len(look.tables.messages),
                "versions": len(look.tables.versions),
                "lines": len(look.lines.operations),
                "torn": look.lines.torn,
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
