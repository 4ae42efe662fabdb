"""Images: resizing."""
