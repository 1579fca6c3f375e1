"""Tables and pictures of what runs have learned."""
