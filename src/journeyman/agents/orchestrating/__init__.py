"""How a plan is carried out: the terms, the money, one subtask, all of them, and the trace they leave."""
