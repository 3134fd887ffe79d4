"""Which team answers a mail? By Pydantic AI: of Journeyman it knows the address alone, from OPENAI_BASE_URL."""

import os
import sys

from pydantic_ai import Agent

TOLD = "Name the team that answers this mail, in one word."

agent = Agent(f"openai-chat:{os.environ.get('MODEL', 'gpt-5-mini')}", instructions=TOLD)
print(agent.run_sync(sys.argv[1]).output)
