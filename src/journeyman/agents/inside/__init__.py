"""What is carried into the sandbox of a foreign agent. Standard library only."""
