"""Policies as SavedModels: written here, read anywhere."""
