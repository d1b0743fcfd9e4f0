"""The wire: OpenAI Realtime GA events, session configuration, error codes. Pure.

The ways in and out:

* `client_events.decode_client_event`: a frame from a client -> a typed event, or a `ClientFault`
* `frames.encode`, `frames.AudioDeltas`: an event of `server_events` -> a frame
* `session_update.initial_config`, `apply_update`: the effective session (`session_config.SessionConfig`)
* `session_config.to_wire`: that session as `session.created` shows it
* `response_config.parse_response`: what one response does otherwise
* `client_secrets`, `extensions.parse_extensions`: what comes before the connection
"""
