"""The demo: record, index, ask, make memories, look by SQL, lose the database, rebuild it. Exits 1 if anything is not as
it should."""

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for benchmarks/, which is not installed

from memstore import Hit, Memory, MemoryStore, MemstoreError, Message, Recall, Scope, StoredMessage
from memstore.importers.jsonl import import_jsonl
from memstore.storage.sqlite.inspection import Inspection
from memstore.types import KINDS
from memstore.wording import check_language, hit_lines, recall_lines, why_not_text

DATA = Path(__file__).resolve().parent / "demo_data"
TEAM = "demo"
SHOWN_CHARS = 96
SHIPPED = ("conversations.zh.jsonl", "conversations.en.jsonl", "people.zh.jsonl", "people.en.jsonl")
PEOPLE = ("chenyu", "nora_b")
"""Two of the shipped conversations in which people tell about themselves."""
SHOWN_PEOPLE, SHOWN_MEMORIES, SHOWN_SCENES = 4, 12, 3


@dataclass(frozen=True)
class Question:
    """What to ask as whom; ``expect`` is text that the answer must hold, where that is known."""

    user_id: str
    text: str
    expect: str | None = None
    language: str = ""


def main(argv: Sequence[str] | None = None) -> int:
    options = _options(argv)
    with tempfile.TemporaryDirectory(prefix="memstore-demo-") as folder:
        path = Path(options.db) if options.db else Path(folder) / "memory.db"
        try:
            faults = _run(path, options)
        except MemstoreError as error:
            print(f"scripts/demo: {error}", file=sys.stderr)
            return 1
    print()
    if faults:
        print("NOT as it should be:")
        for fault in faults:
            print(f"  - {fault}")
        return 1
    print("Everything as it should be. 一切正常。")
    return 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__)
    parser.add_argument("--input", help="a JSONL file of your own: role, content, session, user_id a line")
    parser.add_argument(
        "--ask", action="append", default=[], help="a question to your own file; may be repeated"
    )
    parser.add_argument("--user", help="who asks, and whose messages are lines without user_id")
    parser.add_argument("--memorybank", help="folder of the MemoryBank data set")
    parser.add_argument("--embedder", default="local", help="local (default), st:NAME_OR_FOLDER, or none")
    parser.add_argument("--db", help="keep the database at this path instead of a temporary one")
    return parser.parse_args(argv)


def _run(path: Path, options: argparse.Namespace) -> list[str]:
    embedder = None if options.embedder == "none" else options.embedder
    faults: list[str] = []
    with MemoryStore(path, embedder=embedder) as store:
        _heading("1. Record 记录")
        if options.memorybank:
            questions = _record_memorybank(store, Path(options.memorybank))
        elif options.input:
            questions = _record_own(store, options)
        else:
            questions = _record_shipped(store)
        _heading("2. Index 建立索引")
        report = store.index(progress=_progress)
        print(
            f"  {report.embedded} vectors, {report.pending} waiting, {report.refused} without text to embed"
        )
        _heading("3. Ask 提问")
        faults += _ask_all(store, questions, strict=not options.memorybank)
        _heading("4. Why, and why not 为什么有，为什么没有")
        faults += _explain(store, questions)
        _heading("5. Memories, scenes and profiles, without a model 记忆、场景与画像（不用模型）")
        faults += _distil(store, questions, shipped=not (options.input or options.memorybank))
        _heading("6. Look by SQL 用 SQL 查看")
        faults += _show_sql(path)
        before = _digest(store)
    _heading("7. Lose the database, rebuild it from the daily JSONL 删库后从 JSONL 重建")
    for file in path.parent.glob(f"{path.name}*"):
        if file.is_file():
            file.unlink()
    recovered = MemoryStore.recover(path)
    with MemoryStore(path) as store:
        after = _digest(store)
    print(f"  {recovered.messages} messages and {recovered.sessions} sessions from {recovered.lines} lines")
    print(f"  digest before {before}\n  digest after  {after}")
    if before != after:
        faults.append("the rebuilt messages differ from the lost ones")
    return faults


def _record_shipped(store: MemoryStore) -> list[Question]:
    for name in SHIPPED:
        report = import_jsonl(store, DATA / name, team_id=TEAM)
        print(f"  {name}: {report.stored} messages of {report.read} lines")
    listed = json.loads((DATA / "questions.json").read_text(encoding="utf-8"))
    return [Question(q["user_id"], q["question"], q["expect"], q["language"]) for q in listed]


def _record_own(store: MemoryStore, options: argparse.Namespace) -> list[Question]:
    report = import_jsonl(
        store,
        Path(options.input),
        team_id=TEAM,
        user_id=options.user,
        agent_id=None if options.user is None else "default",
    )
    print(f"  {options.input}: {report.stored} messages of {report.read} lines")
    for skipped in report.skipped:
        print(f"  skipped line {skipped.line}: {skipped.reason}")
    with store._storage.read() as reader:  # noqa: SLF001 - the demo looks behind the facade to know who is there
        rows = [row for row in reader.dump_messages() if row.role == "user"]
    users = sorted({row.user_id for row in rows})
    if options.ask:
        return [Question(options.user or users[0], text) for text in options.ask]
    print("  no --ask given: asking for the first words of each user's longest message")
    longest = {
        row.user_id: max((r for r in rows if r.user_id == row.user_id), key=lambda r: len(r.content))
        for row in rows
    }
    return [Question(user, json.loads(longest[user].content)[:40]) for user in users[:5]]


def _record_memorybank(store: MemoryStore, folder: Path) -> list[Question]:
    from benchmarks.memorybank import read

    questions: list[Question] = []
    total = 0
    for language in ("zh", "en"):
        for person in read(folder, language):
            scope = Scope(TEAM, person.name, "companion")
            for day, chat in groupby(person.messages, key=lambda message: message.at[:10]):
                said = [Message(message.role, message.text, created_at=message.at) for message in chat]
                total += store.record(scope, said, session=f"companion:chat:{day}").new
            questions += [Question(person.name, text, None, language) for text in person.questions]
    print(f"  {total} messages, {len(questions)} probing questions")
    return questions


def _ask_all(store: MemoryStore, questions: list[Question], *, strict: bool) -> list[str]:
    faults: list[str] = []
    found = 0
    for number, question in enumerate(questions, 1):
        scope = Scope(TEAM, question.user_id)
        answer = store.search_messages(scope, question.text, limit=5, explain=True)
        right = question.expect is None or any(question.expect in hit.content for hit in answer)
        found += right
        _show(number, question, answer, right)
        if not answer.hits:
            faults.append(f"no hit for {question.user_id}: {question.text}")
        if any(hit.user_id != question.user_id for hit in answer):
            faults.append(f"a hit of another user for {question.user_id}: {question.text}")
        if strict and not right:
            faults.append(f"{question.expect!r} is not among the hits of: {question.text}")
        faults += [f"a leg was missing: {degraded}" for degraded in answer.degraded]
    languages = sorted({question.language for question in questions if question.language})
    print(
        f"\n  {len(questions)} questions ({', '.join(languages) or 'own'}), {found} answered, hits of the right user only: "
        f"{'yes' if not any('another user' in fault for fault in faults) else 'NO'}"
    )
    return faults


def _show(number: int, question: Question, answer: Recall, right: bool) -> None:
    mark = "✓" if right else "✗"
    print(f"\n  {number}. [{question.user_id}] {question.text}   {mark}  ({answer.took_ms:.0f} ms)")
    for hit in answer.hits[:3]:
        print(f"     {hit.rank}. {hit.score:.4f} {hit.created_at:%Y-%m-%d} {hit.role}: {_short(hit.content)}")
        print(f"        {_why(hit)}")


def _why(hit: Hit) -> str:
    if hit.explanation is None:
        return ""
    legs = ", ".join(f"{leg} #{report.rank}" for leg, report in hit.explanation.legs.items())
    tokens = " ".join(hit.explanation.tokens[:8])
    return f"why: {legs}" + (f"; words: {tokens}" if tokens else "")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_CHARS else line[: SHOWN_CHARS - 1] + "…"


def _explain(store: MemoryStore, questions: list[Question]) -> list[str]:
    """One question of each language, explained in it: the first hit's way, and that of a row that was not returned.
    The recall is kept, and asked again."""
    faults: list[str] = []
    for language in ("zh", "en"):
        question = next((q for q in questions if q.language in (language, "")), None)
        if question is None:
            continue
        scope, spoken = Scope(TEAM, question.user_id), check_language(language)
        answer = store.search_messages(scope, question.text, limit=1, explain=True, trace=True)
        print(f"\n  [{question.user_id}] {question.text}")
        for hit in answer:
            print(f"     1. {_short(hit.content)}")
            for line in hit_lines(hit.explanation, spoken) if hit.explanation else ():
                print(f"        {line}")
        for line in list(recall_lines(answer, spoken))[:6]:
            print(f"     {line}")
        others = (
            [c.id for c in answer.explanation.candidates if c.outcome != "returned"]
            if answer.explanation
            else []
        )
        if others:
            missing = store.why_not(scope, others[0], question.text, limit=1)
            for line in why_not_text(missing, spoken).split("\n"):
                print(f"     {line}")
        if answer.trace_id is not None and not store.replay(scope, answer.trace_id).same:
            faults.append(f"the replay of a stored recall differs: {question.text}")
    return faults


def _distil(store: MemoryStore, questions: list[Question], *, shipped: bool) -> list[str]:
    """Do all the background work at once, then show what it made of a few people's conversations."""
    report = store.work(once=True, force=True)
    print(f"  background work: {report.done} jobs done, {report.failed} failed, {report.dead} gave up")
    faults = ["background work failed"] if report.failed or report.dead else []
    people = (
        PEOPLE if shipped else tuple(dict.fromkeys(question.user_id for question in questions))[:SHOWN_PEOPLE]
    )
    for user_id in people:
        _show_person(store, user_id)
        faults += _unfounded(store, user_id)
        if shipped:
            faults += _missing(store, user_id)
    return faults


def _missing(store: MemoryStore, user_id: str) -> list[str]:
    """What must have been made of the conversations of the two who tell about themselves."""
    scope = Scope(TEAM, user_id, "helper")
    memories = store.get_all(scope, limit=1_000, include_history=True)
    kinds = {memory.kind for memory in memories}
    faults = [f"{user_id} has no {kind} memory" for kind in KINDS if kind not in kinds]
    if not any(memory.superseded_by for memory in memories):
        faults.append(f"{user_id} moved, and no memory was replaced")
    faults += [f"{user_id} has no {which} profile" for which in ("agent", "user")
               if store.profile(scope, which) is None]  # type: ignore[arg-type] # fmt: skip
    return faults if store.scenes(scope) else [*faults, f"{user_id} has no scenes"]


def _show_person(store: MemoryStore, user_id: str) -> None:
    """Memories with what they were made from and what they replaced; scenes; both profiles."""
    scope = Scope(TEAM, user_id)
    print(f"\n  [{user_id}]")
    for verdict in reversed(store.verdicts(scope, limit=SHOWN_MEMORIES)):
        said = store.get(scope, verdict.source_ids[0])
        print(
            f"     {verdict.action:<6} {verdict.kind:<11} {_short(verdict.content)}   ({verdict.decided_by})"
        )
        print(f"            from: {_short(said.text if isinstance(said, StoredMessage) else '')}")
        for target in verdict.target_ids:
            last = store.history(scope, target)[-1]
            if isinstance(last, Memory):
                print(f"            old:  {_short(last.content)}   ({last.state})")
    scenes = store.scenes(scope)
    for scene in scenes[:SHOWN_SCENES]:
        print(f"     scene  {scene.name}: {_short(scene.content)}")
    agents = sorted({scene.agent_id for scene in scenes})
    profiles = [
        store.profile(scope, "user"),
        *(store.profile(Scope(TEAM, user_id, a), "agent") for a in agents),
    ]
    for profile in profiles:
        if profile is not None:
            print(f"     profile of the {profile.profile}:")
            print("\n".join(f"       {line}" for line in profile.content.splitlines() if line))


def _unfounded(store: MemoryStore, user_id: str) -> list[str]:
    """Memories that no message of that user stands behind: there must be none."""
    faults = []
    scope = Scope(TEAM, user_id)
    for verdict in store.verdicts(scope, limit=1_000):
        messages = [store.get(scope, source) for source in verdict.source_ids]
        if not messages or not all(
            isinstance(one, StoredMessage) and one.user_id == user_id for one in messages
        ):
            faults.append(f"a memory without its source: {verdict.content}")
    return faults


def _show_sql(path: Path) -> list[str]:
    statements = (
        """SELECT user_id, count(*) AS messages, count(DISTINCT session) AS sessions, max(created_at) AS last
           FROM v_messages GROUP BY user_id ORDER BY messages DESC LIMIT 5""",
        "SELECT session, title, updated_at FROM v_sessions ORDER BY updated_at DESC LIMIT 3",
        "SELECT team_id, layer, table_name FROM v_text_indexes",
        """SELECT user_id, kind, content, decided_by FROM v_verdicts WHERE action = 'store'
           ORDER BY number DESC LIMIT 3""",
        "SELECT user_id, profile, version, substr(content, 1, 60) FROM v_profiles ORDER BY user_id LIMIT 3",
    )
    with Inspection(path) as inspection:
        for statement in statements:
            print(f"  {' '.join(statement.split())}")
            rows = inspection.rows(statement)
            if not rows:
                return [f"no rows from: {statement}"]
            for row in rows:
                print(f"     {row}")
    return []


def _digest(store: MemoryStore) -> str:
    """SHA-256 of an ordered dump of all messages and sessions."""
    digest = hashlib.sha256()
    with store._storage.read() as reader:  # noqa: SLF001 - the dump is part of the storage contract
        for row in _rows(reader.dump_messages(), reader.dump_sessions()):
            digest.update(json.dumps(row, ensure_ascii=False, sort_keys=True).encode())
    return digest.hexdigest()[:32]


def _rows(*dumps: Iterator[object]) -> Iterator[dict[str, object]]:
    for dump in dumps:
        for row in dump:
            yield asdict(row)  # type: ignore[call-overload]


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r  {done} of {total}", end="" if done < total else "\n", file=sys.stderr, flush=True)


def _heading(text: str) -> None:
    print(f"\n{text}\n{'─' * 72}")


if __name__ == "__main__":
    sys.exit(main())
