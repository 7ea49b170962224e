"""The APIs that clients speak: how each one's requests are read and its replies written. Pure."""
