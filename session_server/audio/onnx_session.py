"""ONNX Runtime sessions as the audio path wants them: one thread, no spinning.

A spinning pool on a busy two-core machine slows everything beside it by a factor of ten.
"""

from __future__ import annotations

from pathlib import Path

import onnxruntime as ort

from session_server.types.errors import ModelsMissing


def open_session(path: Path) -> ort.InferenceSession:
    """Load a model; raises ModelsMissing when the file is not there."""
    if not path.is_file():
        raise ModelsMissing(f"{path} is missing: run `session-server models fetch`")
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
