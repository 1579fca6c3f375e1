"""The code that all training shares: experiment, trainer, learner, checkpoints."""
