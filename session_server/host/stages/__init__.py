"""A stage and the engine that runs it: runners, worker threads and processes, and moves of KV state."""
