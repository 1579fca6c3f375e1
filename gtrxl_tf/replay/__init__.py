"""One Reverb server that takes unrolls to the learner and weights to the actors."""
