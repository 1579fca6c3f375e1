"""Settings on top of gin: checked arguments, files, differences, samples and seeds."""
