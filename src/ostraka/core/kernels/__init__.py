"""Compiled kernels: what they compute is documented where Python calls them."""
