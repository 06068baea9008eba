"""Networks and how they are trained."""
