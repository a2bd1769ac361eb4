"""Other toolkits beside this one: read their recordings, run them as peers, compare."""
