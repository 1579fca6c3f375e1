"""Online training: actors play and write unrolls to a queue, from which a learner reads."""
