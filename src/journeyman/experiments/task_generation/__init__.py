"""Tasks made of repositories: what is drafted, what becomes a task, and whether a set of them can be trusted."""
