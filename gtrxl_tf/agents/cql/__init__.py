"""Conservative Q-learning, a baseline that learns from recorded episodes."""
