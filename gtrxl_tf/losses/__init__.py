"""Losses as pure functions of tensors, without variables."""
