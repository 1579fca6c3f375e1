"""Losses as pure functions: tensors in, tensors out, no variables."""
