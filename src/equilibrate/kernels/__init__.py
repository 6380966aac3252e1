"""Triton kernels over many tensors in one launch; imported only where `fused=True` asks for them."""
