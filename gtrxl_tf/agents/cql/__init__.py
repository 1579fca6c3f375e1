"""Conservative Q-learning, a baseline of policies learned from recorded episodes."""
