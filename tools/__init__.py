"""Measurements and checks for those who work on the library; run them from a clone.

They are not in the wheel. Nothing in gtrxl_tf/ or binaries/ imports them, except tests.
"""
