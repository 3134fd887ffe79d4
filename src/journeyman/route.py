"""The router at work: a request goes to the cheapest worker that will get it right."""
