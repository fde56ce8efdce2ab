"""Facts that several passes ask for."""
