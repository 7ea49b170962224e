"""The one port for models and its adapters. Nothing is imported here, so that a start pays for no adapter."""
