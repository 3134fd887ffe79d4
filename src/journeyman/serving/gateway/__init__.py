"""The server that agents talk through."""
