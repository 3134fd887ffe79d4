"""Who does the subtasks of a plan: models, agents, code in a sandbox, HTTP APIs, functions."""
