"""Which steps, in which order, by whom: learned from plans and from what became of them."""
