"""`POST /v1/responses/compact`: a conversation becomes one item, from which another one goes on.

The cheapest worker writes a summary, without a plan. The item's `encrypted_content` is that
summary, readable for every server of conductor, so nothing of it has to be kept. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from conductor_cli.core.mappings import without_keys
from conductor_cli.server.api.encoding import conductor_object, responses_usage
from conductor_cli.server.api.ignored_fields import asks
from conductor_cli.server.api.request import ClientRequest, ServedAnswer
from conductor_cli.server.api.responses import ResponsesApi, write_compaction
from conductor_cli.server.api.responses_encoder import ResponsesEncoder

_INSTRUCTION: Final = """\
Summarize the conversation so far, so that somebody who reads only the summary can go on with it. \
Keep what the user wants, what was decided, names, numbers, paths and words that were asked to be \
remembered, what was done and what is left to do. Write nothing but the summary."""

_UNSERVED: Final = frozenset({"stream", "background", "tools", "tool_choice", "text"})
"""Fields of a response that mean nothing for a summary."""


class CompactionEncoder(ResponsesEncoder):
    """Writes the answer to one request, which is always whole."""

    def whole(self, answer: ServedAnswer) -> dict[str, Any]:
        item = {
            "id": f"cmp_{self.run}_0",
            "type": "compaction",
            "encrypted_content": write_compaction(answer.text, quotes_files=answer.quotes_files),
        }
        return {
            "id": f"resp_{self.run}",
            "object": "response.compaction",
            "created_at": self.created,
            "output": [item],
            "usage": responses_usage(answer.usage),
            "conductor": conductor_object(answer, self._request.ignored),
        }


class CompactionApi(ResponsesApi):
    """`POST /v1/responses/compact`."""

    encoder = CompactionEncoder

    def parse(self, body: Mapping[str, Any]) -> ClientRequest:
        request_body = without_keys(body, _UNSERVED)
        asking = {"type": "message", "role": "user", "content": _INSTRUCTION}
        request_body["input"] = [*_items(body.get("input")), asking]
        request = super().parse(request_body)
        unstored = {**request.echo, "store": False}
        left_out = [name for name in _UNSERVED if asks(body.get(name))]
        ignored = tuple(sorted({*request.ignored, *left_out}))
        return replace(request, purpose="compaction", store=False, echo=unstored, ignored=ignored)


def _items(conversation: object) -> Sequence[object]:
    """Return the items of an input, which may be one text, or left out."""
    if conversation is None:
        return ()
    if isinstance(conversation, str):
        return [{"type": "message", "role": "user", "content": conversation}]
    if isinstance(conversation, list):
        return conversation
    return [conversation]
