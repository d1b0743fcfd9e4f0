"""Signal processing of the input path: formats, resampling, framing, VAD, turn model, echo guard."""
