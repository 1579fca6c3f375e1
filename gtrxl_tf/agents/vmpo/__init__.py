"""V-MPO, which learns online."""
