"""Starts runs: on one machine with all their parts, or one part in this process."""
