"""The tools over an attached directory, beside those of the servers of a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.file_tools import (
    OFFERED,
    FileTools,
    Search,
    WrongArgument,
    describe_matches,
    search_job,
)
from conductor_cli.core.question import File
from conductor_cli.core.tools import AskPerson, OfferedTool, ToolBox, ToolResult
from conductor_cli.programs import search_process
from conductor_cli.programs.bounded_child import ChildLimits, ChildStopped, run_child_beside
from conductor_cli.system.threads import run_in_thread_if_large

SEARCH_LIMITS: Final = ChildLimits(seconds=10, memory=1 << 30, cpu_seconds=10)
_SPECIAL: Final = frozenset("\\.^$*+?{}[]|()")


class DirectoryToolBox:
    """The tools over some files, and those of `servers` that a worker has besides."""

    def __init__(self, files: Sequence[File], servers: ToolBox | None) -> None:
        self._tools = FileTools(files)
        self._servers = servers
        self._directory_tools = OFFERED

    async def offered(self, servers: Sequence[str]) -> tuple[OfferedTool, ...]:
        if self._servers is None or not servers:
            return self._directory_tools
        others = await self._servers.offered(servers)
        taken_names = {item.tool.name for item in others}
        self._directory_tools = tuple(_named_apart(item, taken_names) for item in OFFERED)
        return (*self._directory_tools, *others)

    async def call(
        self, tool: OfferedTool, arguments: Mapping[str, Any], ask: AskPerson | None = None
    ) -> ToolResult:
        if tool not in self._directory_tools:
            assert self._servers is not None
            return await self._servers.call(tool, arguments, ask)
        try:
            answer = self._tools.answer(tool.own_name, arguments)
            text = await search_files(answer) if isinstance(answer, Search) else answer
        except WrongArgument as error:
            return ToolResult(text=str(error), error=True)
        return ToolResult(text=text)

    def take_notices(self) -> tuple[str, ...]:
        return () if self._servers is None else self._servers.take_notices()

    async def close(self) -> None:
        """Close nothing: the servers are the run's."""


def _named_apart(offered: OfferedTool, taken_names: Collection[str]) -> OfferedTool:
    """Return a tool under another name where a server has one of that name."""
    if offered.tool.name not in taken_names:
        return offered
    tool = replace(offered.tool, name=f"{offered.server}_{offered.own_name}")
    return replace(offered, tool=tool)


async def search_files(search: Search) -> str:
    """Return the lines that a search finds. Raises `WrongArgument` for a pattern that is none."""
    size = sum(len(file.text) for file in search.files)
    if _SPECIAL.isdisjoint(search.pattern):
        return await run_in_thread_if_large(
            size, lambda: describe_matches(search, _find_words(search))
        )
    try:
        values = await run_child_beside(
            Path(search_process.__file__), search_job(search), SEARCH_LIMITS
        )
    except ChildStopped:
        raise WrongArgument(
            f"the search took more than {SEARCH_LIMITS.seconds:g} s; use a simpler pattern"
        ) from None
    for value in values:
        if "problem" in value:
            raise WrongArgument(f"the pattern is no regular expression: {value['problem']}")
    lines_by_file = {value["text"]: value["lines"] for value in values}
    return await run_in_thread_if_large(size, lambda: describe_matches(search, lines_by_file))


def _find_words(search: Search) -> dict[int, list[int]]:
    """Return the lines that contain the pattern as it is, by the position of their file."""
    matches: dict[int, list[int]] = {}
    for position, file in enumerate(search.files):
        text = file.text.lower() if search.ignore_case else file.text
        if search.pattern not in text:
            continue
        lines = enumerate(text.removesuffix("\n").split("\n"), start=1)
        matches[position] = [number for number, line in lines if search.pattern in line]
    return matches
