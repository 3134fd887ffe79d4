"""Which team answers a mail? By DSPy: of Journeyman it knows the address alone, from OPENAI_BASE_URL."""

import os
import sys

import dspy

TOLD = "Name the team that answers this mail, in one word."

# From its cache on disk DSPy would answer as before, whatever was released since.
lm = dspy.LM(f"openai/{os.environ.get('MODEL', 'gpt-5-mini')}", api_base=os.environ.get("OPENAI_BASE_URL"), cache=False)
dspy.configure(lm=lm)
predict = dspy.Predict(dspy.Signature("mail -> team", TOLD))
print(predict(mail=sys.argv[1]).team)
