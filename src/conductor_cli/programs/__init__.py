"""Programs that are started, and ended together with everything that they have started."""
