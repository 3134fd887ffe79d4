"""The learners, and the words that they share."""
