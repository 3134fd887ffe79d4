"""The planner at work: instructions collected and carried out, phases of training, proof and release."""
