"""What runs on the far side of the walls: standard library only and nothing of journeyman, as untrusted code can see it.

fork server (fork_server.py)   warm, forks a supervisor for each run, and never sees what a run holds
  supervisor (supervisor.py)  outside the walls of its run: watches, relays tools, kills, collects, reports
    init              the first process within: reaps orphans; when it goes, the kernel ends all the others
      code            what nobody trusts (runner.py, tools.py)
"""
