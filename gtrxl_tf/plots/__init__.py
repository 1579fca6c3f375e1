"""Computes learning curves, writes them as CSV and draws them."""
