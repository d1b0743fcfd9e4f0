"""The engine host: messages, recognition, responses, admission, calibration; it knows sessions by their messages only."""
