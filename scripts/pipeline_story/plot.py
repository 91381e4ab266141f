"""The story: 40 messages of one user and an agent, and a model that says the same to the same question.

Two statements are contradicted later, one verdict is undone, and for a while the model cannot be reached.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from memstore.errors import LLMUnavailable
from memstore.llm import LLMReply, LLMRequest, Usage

ROUNDS = (
    ("我叫林川，住在成都，在一家做地图的公司写后端。", "好的，林川。"),
    ("平时主要用 Python，数据库是 PostgreSQL。", "记下了。"),
    ("以后回答都用中文，代码注释也用中文。", "好的，以后都用中文。"),
    ("I'm allergic to peanuts, by the way.", "记下了：对花生过敏。"),
    ("今天天气真不错。", "是啊，适合出门走走。"),
    ("我们决定三月二十日发布 2.0 版。", "好的，2.0 版三月二十日发布。"),
    ("帮我把这句话翻译成英文：路上小心。", "Take care on the way."),
    ("周末一般去爬山，青城山去得最多。", "青城山风景很好。"),
    ("烦死了，会开了一整天。", "辛苦了，早点休息。"),
    ("我上周搬到杭州了，公司在这边设了分部。", "恭喜搬到杭州。"),
    ("我女儿叫小满，今年上小学。", "小满，很好听的名字。"),
    ("2.0 版的发布推迟到四月十日。", "好的，改到四月十日。"),
    ("测试环境的磁盘上周又满了。", "需要我列出清理的步骤吗？"),
    ("列一下吧。", "先看日志目录，再看旧的构建产物。"),
    ("每天早上跑五公里，坚持半年了。", "很厉害。"),
    ("对了，回答尽量简短，不要超过三句。", "好的。"),
    ("下个月去新加坡参加一个数据库会议。", "祝顺利。"),
    ("会议上我要讲我们怎么做分片。", "需要帮你准备提纲吗？"),
    ("先不用，谢谢。", "好的。"),
    ("今天就到这里。", "好的，明天见。"),
)

FACTS: dict[str, tuple[tuple[str, str, int], ...]] = {
    ROUNDS[0][0]: (
        ("林川住在成都", "persona", 80),
        ("林川在一家做地图的公司写后端", "persona", 70),
    ),
    ROUNDS[1][0]: (("林川主要用 Python 和 PostgreSQL", "persona", 60),),
    ROUNDS[2][0]: (("回答和代码注释都用中文", "instruction", 85),),
    ROUNDS[3][0]: (("林川对花生过敏", "persona", 95),),
    ROUNDS[5][0]: (("2.0 版定于 2026-03-20 发布", "episodic", 70),),
    ROUNDS[7][0]: (("林川周末常去爬青城山", "persona", 50),),
    ROUNDS[9][0]: (("林川搬到了杭州", "persona", 80),),
    ROUNDS[10][0]: (("林川的女儿叫小满，在上小学", "persona", 75),),
    ROUNDS[11][0]: (("2.0 版的发布推迟到 2026-04-10", "episodic", 75),),
    ROUNDS[14][0]: (("林川每天早上跑五公里", "persona", 55),),
    ROUNDS[15][0]: (("回答尽量简短，不超过三句", "instruction", 80),),
    ROUNDS[16][0]: (("林川 2026-04 去新加坡参加数据库会议", "episodic", 65),),
}
REPLACES = {
    "林川搬到了杭州": "林川住在成都",
    "2.0 版的发布推迟到 2026-04-10": "2.0 版定于 2026-03-20 发布",
}
UNDONE = "2.0 版的发布推迟到 2026-04-10"
"""The verdict about this is undone in the end."""

_BLOCK = r"<{0}>\n?(.*?)\n?</{0}>"


class Model:
    """Answers from the tables above; the same to the same question, so that it does not matter who asks or how often.

    ``reachable`` is set by the story.
    """

    name = "story"

    def __init__(self) -> None:
        self.reachable = True
        self.asked: list[str] = []

    def complete(self, request: LLMRequest) -> LLMReply:
        self.asked.append(request.task)
        if not self.reachable:
            raise LLMUnavailable("the model is out of order")
        said = next(message["content"] for message in request.messages if message["role"] == "user")
        answer = {
            "extract": self._extract,
            "verdict": self._verdict,
            "scenes": self._scenes,
            "profile": self._profile,
        }[request.task](said)
        text = json.dumps(answer, ensure_ascii=False)
        return LLMReply(text, usage=Usage(len(said) // 2, len(text) // 2))

    @staticmethod
    def _extract(said: str) -> dict[str, Any]:
        memories = [
            {
                "content": content,
                "kind": kind,
                "priority": priority,
                "source_ids": [message["id"]],
                "time_start": None,
                "time_end": None,
            }
            for message in _lines(said, "new_messages")
            for content, kind, priority in FACTS.get(message["text"], ())
        ]
        return {"scene": "林川的工作与生活", "scene_changed": False, "memories": memories}

    @staticmethod
    def _verdict(said: str) -> dict[str, Any]:
        verdicts = []
        for item in _lines(said, "items"):
            old = REPLACES.get(item["content"])
            targets = [known["id"] for known in item["neighbours"] if known["content"] == old]
            verdicts.append(
                {
                    "item": item["item"],
                    "action": "update" if targets else "store",
                    "target_ids": targets,
                    "content": item["content"],
                    "kind": item["kind"],
                    "priority": item["priority"],
                }
            )
        return {"verdicts": verdicts}

    @staticmethod
    def _scenes(said: str) -> dict[str, Any]:
        """One scene that lists everything."""
        memories = list(_lines(said, "memories"))
        scenes = list(_lines(said, "scenes"))
        kept = scenes[0]["content"].splitlines() if scenes else []
        lines = [*kept, *(f"- {memory['content']}" for memory in memories)]
        change = {
            "scene_id": scenes[0]["scene_id"] if scenes else None,
            "name": "林川的工作与生活",
            "content": "\n".join(dict.fromkeys(lines)),
            "memory_ids": [memory["id"] for memory in memories],
            "merged_ids": [],
        }
        return {"changes": [change] if memories else []}

    @staticmethod
    def _profile(said: str) -> dict[str, Any]:
        memories = sorted(memory["content"] for memory in _lines(said, "memories"))
        return {"profile": "\n".join(f"- {content}" for content in memories)}


def _lines(said: str, mark: str) -> Iterator[dict[str, Any]]:
    found = re.search(_BLOCK.format(mark), said, re.DOTALL)
    for line in (found[1] if found else "").splitlines():
        if line.strip():
            yield json.loads(line)
