"""The interface of models and its adapters.

Nothing is imported here, so that no start waits for an adapter.
"""
