"""What every layer above core needs of a machine: files, threads, memory, secrets that are known."""
