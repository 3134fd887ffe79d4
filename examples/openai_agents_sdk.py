"""Which team answers a mail? By OpenAI's Agents SDK: of Journeyman it knows the address alone, from OPENAI_BASE_URL."""

import os
import sys

from agents import Agent, Runner, set_tracing_disabled

TOLD = "Name the team that answers this mail, in one word."

# Its own tracing sends to OpenAI; what passes the gateway is recorded there.
set_tracing_disabled(True)
agent = Agent(name="mails", instructions=TOLD, model=os.environ.get("MODEL", "gpt-5-mini"))
print(Runner.run_sync(agent, sys.argv[1]).final_output)
