"""What all kinds of training share: experiment, trainer, learner, checkpoints, metrics."""
