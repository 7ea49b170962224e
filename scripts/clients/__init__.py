"""`make clients`: real clients against `serve`, over a planner and workers that follow a script."""
