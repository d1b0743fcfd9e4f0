"""Our own realtime client, and what the command line runs with it."""
