"""The formats in which a planner writes a plan.

To add one, add a file here and a row to `PLAN_FORMATS`.
"""

from __future__ import annotations

from typing import Final

from conductor_cli.core.plan_formats.base import (
    ParsedStep,
    PlanFormat,
    PlanFormatContext,
    PlanParser,
)
from conductor_cli.core.plan_formats.json import JsonFormat
from conductor_cli.core.plan_formats.native import NativeFormat
from conductor_cli.core.plan_formats.published import PublishedFormat

PLAN_FORMATS: Final[dict[str, PlanFormat]] = {
    plan_format.name: plan_format
    for plan_format in (NativeFormat(), PublishedFormat(), JsonFormat())
}

__all__ = ["PLAN_FORMATS", "ParsedStep", "PlanFormat", "PlanFormatContext", "PlanParser"]
