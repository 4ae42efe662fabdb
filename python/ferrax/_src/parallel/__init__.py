"""Programs over the devices of a mesh."""
