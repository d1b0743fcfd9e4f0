"""One session: its task, audio in and out, camera, events in and out, and its messages to the engine host."""
