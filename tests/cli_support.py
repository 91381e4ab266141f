"""Running the command line in tests: in this process, and as a program of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from memstore.cli.app import cli
from memstore.config import ENVIRONMENT


class Cli:
    """The command line on one store, as one user."""

    def __init__(self, db: Path, user: str | None = "lin") -> None:
        self.db = db
        self.env: dict[str, str | None] = dict.fromkeys(ENVIRONMENT.values())
        self.env |= {"MEMSTORE_DB": str(db), "MEMSTORE_USER": user}

    def __call__(self, *args: str, stdin: str | bytes | None = None, **env: str | None) -> Result:
        return CliRunner().invoke(cli, list(args), input=stdin, env={**self.env, **env})

    def answer(self, *args: str, **more: Any) -> Any:
        """The JSON document of a call that must succeed."""
        result = self(*args, **more)
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)

    def shown(self, *args: str, **more: Any) -> str:
        """The text of a call that must succeed."""
        result = self(*args, "--format", "text", **more)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    def program(
        self, args: Sequence[str | bytes], *, stdin: bytes = b"", **env: str
    ) -> subprocess.CompletedProcess[bytes]:
        """A process of its own: what streams, locale and start-up really do."""
        return subprocess.run(
            [sys.executable, "-m", "memstore.cli", *args],
            input=stdin,
            capture_output=True,
            env=self.environ(**env),
        )

    def environ(self, **env: str) -> dict[str, str]:
        """This process' environment, with the store's names."""
        inherited = {name: value for name, value in os.environ.items() if name not in self.env}
        return inherited | {name: value for name, value in self.env.items() if value is not None} | env


def lines(text: str) -> list[Any]:
    """The documents of JSON lines."""
    return [json.loads(line) for line in text.split("\n") if line]
