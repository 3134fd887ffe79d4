"""What others recorded, as traces."""
