"""The pass fetch-ahead and its parts."""
