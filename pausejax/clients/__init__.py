"""Studies of client selection: one of the two kinds of study."""
