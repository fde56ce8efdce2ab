"""The methods of UOp and the functions that begin a graph. The compiler does not import them."""
