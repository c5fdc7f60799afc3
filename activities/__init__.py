"""The hands: the only room where side effects happen."""
