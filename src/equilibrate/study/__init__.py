"""The study room: problems, many trials at once, records that survive a kill, search."""
