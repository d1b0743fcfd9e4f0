"""The functional core: sessions, turns, playback, conversation. Pure: no clock, I/O or randomness."""
