"""Sparse and elementwise kernels on torch tensors; they know no graph and no ranks.

Each function picks its path by the tensors' device: compiled loops on the CPU, torch's own
operations elsewhere. Results do not depend on the number of threads.
"""

from gnndist.kernels.attention import AttentionState, EdgeDropout, attention_delta
from gnndist.kernels.columns import column_moments, column_products, normalize_backward
from gnndist.kernels.compiling import compile_kernels
from gnndist.kernels.csr import CSR
from gnndist.kernels.dropout import (
    bias_relu_dropout,
    bias_relu_dropout_backward,
    hash_dropout,
)
from gnndist.kernels.gat import gat_backward, gat_forward
from gnndist.kernels.gatv2 import gatv2_backward, gatv2_forward
from gnndist.kernels.hashing import dropout_key, edge_hash_mask, hash_mask
from gnndist.kernels.segment import segment_max, segment_max_backward
from gnndist.kernels.spmm import spmm

__all__ = [
    "CSR",
    "AttentionState",
    "EdgeDropout",
    "attention_delta",
    "bias_relu_dropout",
    "bias_relu_dropout_backward",
    "column_moments",
    "column_products",
    "compile_kernels",
    "dropout_key",
    "edge_hash_mask",
    "gat_backward",
    "gat_forward",
    "gatv2_backward",
    "gatv2_forward",
    "hash_dropout",
    "hash_mask",
    "normalize_backward",
    "segment_max",
    "segment_max_backward",
    "spmm",
]
