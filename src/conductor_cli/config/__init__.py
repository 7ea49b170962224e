"""Settings: what the tool, the user, a project, the environment and a command line say."""
