"""Frame-synchronous duplex models: the contract, Moshi behind it, and tiny models of the same classes."""

import os

# Read when moshi is imported, whoever imports it first: compiling would need a C++ compiler, and minutes.
os.environ.setdefault("NO_TORCH_COMPILE", "1")
