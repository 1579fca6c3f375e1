"""Offline training: a learner reads datasets of episodes or of learning histories."""
