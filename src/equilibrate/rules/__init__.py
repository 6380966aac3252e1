"""The arithmetic of a step: a reference to read, and fast versions with the same signature."""
