"""Words that everything else is said in; the standard library only."""
