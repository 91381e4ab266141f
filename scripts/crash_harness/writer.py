"""One writer: a thread that calls the store at random, by a seed, and tells the journal before and behind each call.

What a line says of a call is all that the oracle knows of it: ``said`` (messages), ``memory``, ``deletes``, ``clears``,
``hides``, ``titles``, ``word`` and ``file``. A writer that takes over from one that was killed reads these lines too.
"""

# ruff: noqa: S311 - seeded chance

import json
import random
import tarfile
from collections.abc import Callable
from typing import Any

from board import BETWEEN, Board
from known import Known, Line, Place

from memstore import Message, Scope
from memstore.errors import InvalidInput, NotFound, NotPermitted, StoreBusy

WORDS = (
    "coffee", "Berlin", "rocket", "宠物可以上车", "银行卡 build-x7", "\u2028line", "emoji 👩‍🚀", "cafe\u0301", "明天开会",
)  # fmt: skip
TEAMS, USERS = ("alpha", "队"), ("ana", "bob", "赵")
ROOT, LEFT = "root", "left"
"""The first user of each team, its admin; and one who left it."""
LONGEST_TALK = 10
SECONDS_OF_A_DAY = 86_400

Say = Callable[..., None]


class Writer:
    """Calls of one thread. ``store`` is the store it shares with the other threads of its process, ``opened`` opens
    another one on the same file."""

    def __init__(self, name: str, incarnation: int, place: Place, seed: str, say: Say, board: Board) -> None:
        self.name = name
        self._prefix = f"{name}.i{incarnation}"
        self._place = place
        self._say = say
        self._board = board
        self._rng = random.Random(f"{seed}/{name}/{incarnation}")
        whose = random.Random(f"{seed}/{name}")
        self._scope = Scope(whose.choice(TEAMS), whose.choice(USERS), name.replace(".", ""))
        self._calls = 0
        self.lies = False
        self.known = Known()

    def inherit(self) -> None:
        """Learn what writers of this name did before."""
        begun: dict[str, Line] = {}
        settled: dict[str, Line | None] = {}
        for raw in self._place.journal.read_bytes().splitlines():
            line = json.loads(raw)
            if line["call"].startswith(f"{self.name}."):
                (begun if line["e"] == "begin" else settled)[line["call"]] = line
        for call, begin in begun.items():
            if settled.get(call, {"e": "done"})["e"] == "done":
                self.known.learn(begin, settled.get(call))

    # --- a call ---------------------------------------------------------------------------------------------

    def _next(self) -> str:
        self._calls += 1
        return f"{self._prefix}.{self._calls}"

    def do(
        self,
        call: str,
        op: str,
        act: Callable[[], Any],
        told: Callable[[Any], Line] = lambda _: {},
        *,
        refused: tuple[type[Exception], ...] = (),
        **said: Any,
    ) -> None:
        """Tell the journal, call, and tell it again. An error that the call may not end with ends the worker."""
        self._board.advance(0.25)
        begin = {"e": "begin", "call": call, "op": op, "scope": self._names(said.pop("scope", None)), **said}
        self._say(**begin)
        self._board.call(op)
        if self.lies:
            self._say(e="done", call=call)
        try:
            result = act()
        except refused as error:
            self._say(e="refused", call=call, error=f"{type(error).__name__}: {error}")
            return
        self._board.at("to be acknowledged")
        done = {} if self.lies else told(result)
        if not self.lies:
            self._say(e="done", call=call, **done)
        self._board.call(BETWEEN)
        self.known.learn(begin, told(result))

    def _names(self, scope: Scope | None) -> list[str | None]:
        scope = scope or self._scope
        return [scope.team_id, scope.user_id, scope.agent_id]

    def _contents(self, call: str, count: int) -> list[Any]:
        """Texts that name their call, their place in it and how many they are."""
        contents: list[Any] = []
        for part in range(1, count + 1):
            words = " ".join(self._rng.choices(WORDS, k=self._rng.randint(1, 5)))
            if self._rng.random() < 0.05:
                words *= 400  # more than a page of the file
            text = f"{words} ⟦{call} {part}/{count}⟧"
            contents.append([{"type": "text", "text": text}] if self._rng.random() < 0.15 else text)
        return contents

    # --- messages -------------------------------------------------------------------------------------------

    def record(self, store: Any, op: str = "record") -> None:
        call = self._next()
        session = self._a_session() if self._rng.random() < 0.8 else f"{self._scope.agent_id}:chat:{call}"
        contents = self._contents(call, self._rng.choice((1, 1, 2, 3, 6)))
        clients = [f"{call}-{n}" for n in range(len(contents))] if self._rng.random() < 0.4 else []
        self._record(store, call, op, session, contents, clients, mine=True)

    def visit(self, opened: Any) -> None:
        """Record by a store of its own, opened and closed while others are open on the same file."""
        with opened() as store:
            self.record(store, "record in a second store")

    def common(self, store: Any) -> None:
        """Record into the session that all writers of the user share."""
        call = self._next()
        scope = Scope(self._scope.team_id, self._scope.user_id, "common")
        self._record(
            store, call, "record in common", "common:chat:all", self._contents(call, 2), [], scope=scope
        )

    def _record(
        self,
        store: Any,
        call: str,
        op: str,
        session: str,
        contents: list,
        clients: list,
        scope: Any = None,
        **more: Any,
    ) -> None:
        messages = [
            Message("user", content, id=client)
            for content, client in zip(contents, clients or [None] * len(contents), strict=True)
        ]
        self.do(
            call, op,
            lambda: store.record(scope or self._scope, messages, session),
            lambda receipt: {"ids": list(receipt.ids), "stored": receipt.stored},
            scope=scope, session=session, said=contents, clients=clients, whole=True, **more,
        )  # fmt: skip

    def again(self, store: Any) -> None:
        """What a client does that got no answer: the same call once more."""
        if not self.known.to_repeat:
            return
        begin = self._rng.choice(self.known.to_repeat)
        call = self._next()
        if "memory" in begin:
            self.known.to_repeat.remove(begin)
            self._add(store, call, begin["memory"], again=begin["call"])
        else:
            self._record(
                store, call, "record again", begin["session"], begin["said"], begin["clients"], again=begin["call"], mine=True
            )  # fmt: skip

    def talk(self, store: Any) -> None:
        """A transcript: gone on with, cut at its beginning, or contradicted, which makes a fork."""
        call = self._next()
        talks = [s for s, heard in self.known.talks.items() if len(heard) < LONGEST_TALK]
        session = self._rng.choice(talks) if talks else f"{self._scope.agent_id}:talk:{call}"
        branch = self.known.talks.get(session, [])
        fresh = self._contents(call, self._rng.choice((1, 2, 3)))
        kept, sent = branch, branch
        how = self._rng.random()
        if len(branch) > 1 and how < 0.4:
            kept = sent = branch[: self._rng.randrange(1, len(branch))]
        elif branch and how < 0.6:
            sent = branch[self._rng.randrange(len(branch)) :]
        messages = [Message("user", content) for content in [*(c for _, c in sent), *fresh]]
        self.do(
            call, "transcript",
            lambda: store.record(self._scope, messages, session, transcript=True),
            lambda receipt: {"ids": list(receipt.ids), "stored": receipt.stored},
            session=session, said=fresh, clients=[], whole=True,
            branch=[i for i, _ in kept], kept=[c for _, c in kept],
        )  # fmt: skip

    def refused(self, store: Any) -> None:
        """Calls that must fail, and take no other down with them."""
        call = self._next()
        contents = self._contents(call, 2)
        messages = [Message("user", content) for content in contents]
        session = f"{self._scope.agent_id}:chat:{call}"
        left = Scope(self._scope.team_id, LEFT, "left")
        acts = {
            "record of a user who left": (lambda: store.record(left, messages, call), NotPermitted),
            "record of a wrong role": (
                lambda: store.record(self._scope, [*messages, Message("nobody", "x")], session),
                InvalidInput,
            ),
            "clearing what is not there": (lambda: store.clear_session(self._scope, session), NotFound),
            "update of another version": (
                lambda: store.update(
                    self._root(), self._shared(), content=str(contents[0]), expected_version=0
                ),
                InvalidInput,
            ),
        }
        op = self._rng.choice(list(acts))
        act, error = acts[op]
        self.do(
            call,
            op,
            act,
            refused=(error,),
            session=session,
            said=contents,
            clients=[],
            whole=True,
            must_fail=True,
        )

    # --- sessions and deletion ------------------------------------------------------------------------------

    def _a_session(self) -> str:
        known = self.known.sessions
        return self._rng.choice(known[-6:]) if known else f"{self._scope.agent_id}:chat:first"

    def clear(self, store: Any) -> None:
        self._of_session("clear session", lambda key: store.clear_session(self._scope, key), "clears")

    def hide(self, store: Any) -> None:
        self._of_session("delete session", lambda key: store.delete_session(self._scope, key), "hides")

    def rename(self, store: Any) -> None:
        call = self._next()
        title, pinned = f"title ⟦{call}⟧", self._rng.random() < 0.5
        self._of_session(
            "rename session",
            lambda key: store.set_session(self._scope, key, title=title, pinned=pinned),
            "titles",
            call=call, title=title, pinned=int(pinned),
        )  # fmt: skip

    def _of_session(self, op: str, act: Callable[[str], None], field_name: str, **more: Any) -> None:
        if self.known.sessions:
            key = self._a_session()
            call = more.pop("call", None) or self._next()
            # hidden by this writer, or of a first call that was killed before it stored anything
            self.do(call, op, lambda: act(key), refused=(NotFound,), **{field_name: key}, **more)

    def delete_message(self, store: Any) -> None:
        if self.known.messages:
            target, _ = self._rng.choice(self.known.messages)
            # hidden together with its session
            self.do(
                self._next(), "delete message", lambda: store.delete(self._scope, target),
                refused=(NotFound,), deletes=target,
            )  # fmt: skip

    def delete_memory(self, store: Any) -> None:
        if self.known.memories:
            target = self._rng.choice(self.known.memories)
            self.do(self._next(), "delete memory", lambda: store.delete(self._scope, target), deletes=target)

    def delete_all(self, store: Any) -> None:
        self.do(self._next(), "delete all", lambda: store.delete_all(self._scope), deletes="all")

    # --- memories -------------------------------------------------------------------------------------------

    def add(self, store: Any) -> None:
        call = self._next()
        memory = {
            "content": str(self._contents(call, 1)[0]),
            "kind": self._rng.choice(("persona", "episodic", "instruction")),
            "key": call if self._rng.random() < 0.5 else None,
        }
        self._add(store, call, memory)

    def _add(self, store: Any, call: str, memory: Line, **more: Any) -> None:
        self.do(
            call, "add memory",
            lambda: store.add(self._scope, memory["content"], kind=memory["kind"], idempotency_key=memory["key"]),
            lambda made: {"id": made.id, "version": made.version},
            memory=memory, **more,
        )  # fmt: skip

    def update(self, store: Any) -> None:
        if self.known.memories:
            self._update(store, self._scope, self._rng.choice(self.known.memories), mine=True)

    def update_shared(self, store: Any) -> None:
        self._update(store, self._root(), self._shared(), mine=False)

    def _update(self, store: Any, scope: Scope, target: str, *, mine: bool) -> None:
        call = self._next()
        content = str(self._contents(call, 1)[0])
        self.do(
            call, "update memory",
            lambda: store.update(scope, target, content=content),
            lambda made: {"id": made.id, "version": made.version},
            scope=scope, memory={"content": content, "id": target, "mine": mine},
        )  # fmt: skip

    def _root(self) -> Scope:
        return Scope(self._scope.team_id, ROOT, "admin")

    def _shared(self) -> str:
        return self._place.shared[self._scope.team_id]

    def teach(self, store: Any) -> None:
        word = "".join(self._rng.choices("鑫淼焱垚犇骉羴猋", k=3))
        self.do(
            self._next(),
            "add words",
            lambda: store.add_words(self._root(), [word]),
            scope=self._root(),
            word=word,
        )

    # --- upkeep ---------------------------------------------------------------------------------------------

    def next_day(self, _store: Any) -> None:
        """Let the clock of all jump: by minutes, or over midnight."""
        self._board.advance(self._rng.choice((60, 600, SECONDS_OF_A_DAY)))

    def upkeep(self, store: Any, verb: str) -> None:
        self.do(self._next(), verb, getattr(store, verb))

    def recover(self, store: Any) -> None:
        """A recovery to another file, while others write."""
        call = self._next()
        target = self._place.folder / f"recovered-{call}.db"
        self.do(
            call, "recover to a new file",
            lambda: type(store).recover(self._place.database, out=target),
            lambda report: {"messages": report.messages},
            refused=(StoreBusy,),  # one recovery at a time
            file=target.name, holds="messages",
        )  # fmt: skip

    def backup(self, store: Any) -> None:
        """A backup to a file of its own, while others write."""
        call = self._next()
        target = self._place.folder / f"backup-{call}.gz"
        self.do(
            call, "backup", lambda: store.backup(target), refused=(StoreBusy,),  # one backup at a time in a folder
            file=target.name, holds="messages and memories",
        )  # fmt: skip

    def bring_in(self, store: Any) -> None:
        """Import a file; one that was killed is imported again, by whoever comes next."""
        from memstore.importers.jsonl import import_jsonl

        unfinished = [begin for begin in self.known.to_finish if begin["op"] == "import"]
        call = self._next()
        if unfinished:
            begin = unfinished[0]
            self.known.to_finish.remove(begin)
            said = {k: begin[k] for k in ("session", "said", "clients", "from_file")} | {
                "again": begin["call"]
            }
        else:
            contents = [str(c) for c in self._contents(call, self._rng.randint(5, 40))]
            said = {
                "session": f"{self._scope.agent_id}:import:{call}", "said": contents,
                "clients": [f"{call}-{n}" for n in range(len(contents))], "from_file": f"import-{call}.jsonl",
            }  # fmt: skip
        file = self._place.folder / said["from_file"]
        lines = [
            json.dumps({"role": "user", "content": content, "id": client})
            for content, client in zip(said["said"], said["clients"], strict=True)
        ]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        team_id, user_id, agent_id = self._names(None)
        self.do(
            call, "import",
            lambda: import_jsonl(
                store, file, team_id=team_id, user_id=user_id, agent_id=agent_id, session=said["session"]
            ),
            whole=False, **said,
        )  # fmt: skip

    def migrate(self, store: Any) -> None:
        """Open a store of an older version, which brings it up to date; one that was killed is opened again."""
        if not self._place.fixtures:
            return
        unfinished = [begin for begin in self.known.to_finish if begin["op"] == "migrate"]
        call = self._next()
        if unfinished:
            name = unfinished[0]["file"]
            self.known.to_finish.remove(unfinished[0])
        else:
            name = f"old-{call}.db"
            fixture = self._rng.choice(self._place.fixtures)
            with tarfile.open(fixture) as archive:
                archive.extractall(self._place.folder / f"{name}.unpacked", filter="data")
            for part in ("", ".fallback"):
                (self._place.folder / f"{name}.unpacked" / f"memory.db{part}").rename(
                    self._place.folder / f"{name}{part}"
                )
        self.do(
            call, "migrate",
            lambda: type(store)(self._place.folder / name).close(),
            file=name, holds="what it held",
        )  # fmt: skip


WEIGHTS: dict[str, float] = {
    "record": 30, "again": 4, "talk": 8, "common": 4, "visit": 2, "refused": 3, "clear": 2, "hide": 1, "rename": 3,
    "delete_message": 4, "delete_memory": 2, "delete_all": 0.3, "add": 8, "update": 7, "update_shared": 3,
    "next_day": 2, "recover": 0.3, "backup": 0.5, "bring_in": 1, "migrate": 0.5, "teach": 0.05,
}  # fmt: skip
"""How often each method of :class:`Writer` is called."""
UPKEEP: dict[str, float] = {"index": 2, "reindex": 0.4, "checkpoint": 0.5, "vacuum": 0.2, "compact": 0.2}
"""The same of verbs without arguments."""


def step(writer: Writer, store: Any, opened: Any, rng: random.Random, without: str = "") -> None:
    """One call, at random."""
    weights = {**WEIGHTS, **UPKEEP}
    weights.pop(without, None)
    (name,) = rng.choices(list(weights), list(weights.values()))
    if name in UPKEEP:
        writer.upkeep(store, name)
    elif name == "visit":
        writer.visit(opened)
    else:
        getattr(writer, name)(store)
