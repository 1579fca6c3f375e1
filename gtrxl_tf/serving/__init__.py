"""Export of policies as SavedModels, and a server of exported policies."""
