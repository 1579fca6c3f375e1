"""PPO, which learns online."""
