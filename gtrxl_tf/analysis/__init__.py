"""Tables and pictures of the results of runs."""
