"""Camera frames: decoding, the change gate, time stamps."""
