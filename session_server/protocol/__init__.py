"""The wire: OpenAI Realtime GA events, session configuration, error codes. Pure."""
