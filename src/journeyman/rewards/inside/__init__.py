"""What is carried into the sandbox: two programs that talk to each other, the checker and the candidate.

Standard library only, and relative imports only: inside, this folder is a package of another name.
"""
