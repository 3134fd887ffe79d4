"""Which model for which request: learned from what became of earlier ones."""
