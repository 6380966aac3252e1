"""Triton kernels over many tensors in one launch; imported where `fused=True` asks for them."""
