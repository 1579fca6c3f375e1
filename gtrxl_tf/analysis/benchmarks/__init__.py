"""Measurements: learner steps, memory cores, and how far a run scales."""
