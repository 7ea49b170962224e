"""What the layers above core need of a machine: files, threads, memory, known secrets."""
