"""What the lists say of themselves, in each language of the page."""

from __future__ import annotations

from typing import Final

from ..page.texts import LANGUAGES

WORDS: Final[dict[str, tuple[str, str]]] = {
    "title": ("Runs and incidents", "运行与故障"),
    "incidents": ("Incidents", "故障"),
    "runs": ("Runs", "运行"),
    "search": ("Search", "搜索"),
    "search_hint": ("id, job, node, category, words of the summary", "编号、任务、节点、类别、摘要中的词"),
    "search_all": ("Show all", "显示全部"),
    "ago": ("{} ago", "{} 前"),
    "just_now": ("just now", "刚刚"),
    "began": ("began", "发生时间"),
    "incident": ("incident", "故障编号"),
    "category": ("category", "类别"),
    "happened": ("what happened", "发生了什么"),
    "started": ("started", "开始时间"),
    "state": ("state", "状态"),
    "took": ("took", "历时"),
    "ranks": ("ranks", "进程数"),
    "step": ("step", "步"),
    "job": ("job", "任务"),
    "nodes": ("nodes", "节点"),
    "trace": ("trace", "追踪编号"),
    "running": ("running", "运行中"),
    "finished": ("finished", "已完成"),
    "failed": ("failed", "失败"),
    "lost": ("lost", "失联"),
    "run": ("run", "第几次运行"),
    "older": ("older ones are not shown: search for them", "条较早的未显示。请搜索"),
    "no_incidents": ("No incidents.", "没有故障。"),
    "no_runs": ("No runs yet. Start one: llmtrace run python train.py", "还没有运行。可以这样启动 llmtrace run python train.py"),
    "none_found": ("Nothing here has these words.", "没有匹配的内容。"),
    "home": ("All runs and incidents", "所有运行与故障"),
    "refused": ("That did not work", "无法显示"),
}
"""key -> (English, Chinese)."""


def words(language: str) -> dict[str, str]:
    """The texts of one language; raises ValueError for one that there is none of."""
    place = LANGUAGES.index(language)
    return {key: texts[place] for key, texts in WORDS.items()}
