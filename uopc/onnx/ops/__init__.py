"""The functions of operators, one file for each kind of operator."""
