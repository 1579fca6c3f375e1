"""Curves of learning: computed, written as CSV and drawn."""
