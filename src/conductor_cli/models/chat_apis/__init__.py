"""The APIs that chat models are behind, by name.

A new one is a module here and a line in `CHAT_APIS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from conductor_cli.models.chat_apis.anthropic import AnthropicMessages
from conductor_cli.models.chat_apis.base import ChatApi
from conductor_cli.models.chat_apis.gemini import GeminiApi
from conductor_cli.models.chat_apis.gemini_chat import GeminiChat
from conductor_cli.models.chat_apis.responses import OpenAIResponses

CHAT_APIS: Final[Mapping[str, ChatApi]] = {
    "chat-completions": ChatApi(),
    "responses": OpenAIResponses(),
    "anthropic": AnthropicMessages(),
    "gemini": GeminiApi(),
    "gemini-chat": GeminiChat(),
}
