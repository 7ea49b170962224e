"""Does conducting pay? The same cases and the same workers, used in every way, scored alike."""
