"""What a forked rank would otherwise import and load for seconds: preloaded by the fork server."""

import torch._dynamo  # noqa: F401  (every optimiser imports it)

import gnndist.cli.evaluate
import gnndist.cli.train  # noqa: F401
from gnndist.kernels import compile_kernels

compile_kernels()
