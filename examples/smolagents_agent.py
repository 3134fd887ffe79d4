"""Which team answers a mail? By smolagents: of Journeyman it knows the address alone, from OPENAI_BASE_URL."""

import os
import sys

from smolagents import LogLevel, OpenAIServerModel, ToolCallingAgent

TOLD = "Name the team that answers this mail, in one word."

model = OpenAIServerModel(os.environ.get("MODEL", "gpt-5-mini"), api_base=os.environ.get("OPENAI_BASE_URL"))
agent = ToolCallingAgent(tools=[], model=model, instructions=TOLD, verbosity_level=LogLevel.OFF)
print(agent.run(sys.argv[1]))
