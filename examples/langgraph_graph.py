"""Which team answers a mail? By LangGraph: of Journeyman it knows the address alone, from OPENAI_BASE_URL."""

import os
import sys

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph

TOLD = "Name the team that answers this mail, in one word."

model = ChatOpenAI(model=os.environ.get("MODEL", "gpt-5-mini"))


def answer(state: MessagesState) -> MessagesState:
    """The one node of the graph."""
    return {"messages": [model.invoke([("system", TOLD), *state["messages"]])]}


graph = StateGraph(MessagesState)
graph.add_node("answer", answer)
graph.add_edge(START, "answer")
graph.add_edge("answer", END)
print(graph.compile().invoke({"messages": [("user", sys.argv[1])]})["messages"][-1].content)
