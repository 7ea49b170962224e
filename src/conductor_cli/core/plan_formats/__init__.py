"""The formats in which a conductor writes a plan. To add one, add a file here and a row to `PLAN_FORMATS`."""

from __future__ import annotations

from typing import Final

from conductor_cli.core.plan_formats.base import ParsedStep, Parser, PlanFormat, PlanFormatContext
from conductor_cli.core.plan_formats.json import JSON
from conductor_cli.core.plan_formats.native import NATIVE
from conductor_cli.core.plan_formats.published import PUBLISHED

PLAN_FORMATS: Final[dict[str, PlanFormat]] = {one.name: one for one in (NATIVE, PUBLISHED, JSON)}

__all__ = ["PLAN_FORMATS", "ParsedStep", "Parser", "PlanFormat", "PlanFormatContext"]
