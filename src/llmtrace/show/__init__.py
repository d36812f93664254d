"""What people and programs get to see: the terminal view and the rows of JSON. Nothing here reads a store."""
