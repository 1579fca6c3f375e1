"""Policies learned from recorded episodes: RATE, Decision Transformer and others."""
