"""torch as these tests want it, before anybody imports it: nothing compiled, nothing captured."""

import os

os.environ.setdefault("NO_CUDA_GRAPH", "1")
os.environ.setdefault("NO_TORCH_COMPILE", "1")
