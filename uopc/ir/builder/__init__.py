"""Making nodes: folded, checked, and with the user's source line."""
