"""Whatever is captured on its way into the store."""
