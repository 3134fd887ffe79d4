"""Which team answers a mail? By OpenAI's SDK: of Journeyman it knows the address alone, from OPENAI_BASE_URL."""

import os
import sys

from openai import OpenAI

TOLD = "Name the team that answers this mail, in one word."

client = OpenAI()
reply = client.chat.completions.create(
    model=os.environ.get("MODEL", "gpt-5-mini"),
    messages=[{"role": "system", "content": TOLD}, {"role": "user", "content": sys.argv[1]}],
)
print(reply.choices[0].message.content)
