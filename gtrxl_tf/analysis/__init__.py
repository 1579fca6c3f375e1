"""Pictures and tables of what was learned."""
