"""Algorithm distillation: policies learned from learning histories."""
