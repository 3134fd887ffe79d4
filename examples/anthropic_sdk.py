"""Which team answers a mail? By Anthropic's SDK: of Journeyman it knows the address alone, from ANTHROPIC_BASE_URL."""

import os
import sys

from anthropic import Anthropic

TOLD = "Name the team that answers this mail, in one word."

client = Anthropic()
reply = client.messages.create(
    model=os.environ.get("MODEL", "claude-sonnet-4-5"),
    max_tokens=100,
    system=TOLD,
    messages=[{"role": "user", "content": sys.argv[1]}],
)
print("".join(part.text for part in reply.content if part.type == "text"))
