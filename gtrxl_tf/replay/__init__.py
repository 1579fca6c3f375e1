"""Unrolls from actors to the learner, and weights back, through one Reverb server."""
