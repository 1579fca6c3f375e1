"""What runs: the experiment's parts, the learner, the actors, and who watches them."""
