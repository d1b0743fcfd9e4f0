"""Sessions on file: the recorder, and the replay of what it wrote."""
