"""What agents saved of themselves, as traces."""
