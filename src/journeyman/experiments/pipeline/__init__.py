"""Several commands as the stages of one pipeline, of which each is carried out once for what it is made of."""
