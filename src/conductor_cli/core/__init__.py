"""The pure core: values and decisions.

Standard library only; no input or output, no clock, no asyncio.
"""
