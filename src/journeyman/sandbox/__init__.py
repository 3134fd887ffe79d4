"""What runs code that nobody trusts."""
