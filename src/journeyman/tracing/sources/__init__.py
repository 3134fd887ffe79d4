"""Where a team's own work stands: sessions of coding agents, git, messages, logs of the day, workspaces of agents.

Nothing is looked for but where somebody asked, and nothing in a source is changed.
"""
