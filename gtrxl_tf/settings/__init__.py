"""Settings: what lies over gin. Checked arguments, files, differences, samples, seeds."""
