"""Online training: actors write unrolls to a queue, from which a learner reads."""
