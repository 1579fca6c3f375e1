"""Export of policies as SavedModels."""
