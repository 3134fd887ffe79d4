"""How a database came to its tables, one numbered file a step. Published ones are never edited: add another."""
