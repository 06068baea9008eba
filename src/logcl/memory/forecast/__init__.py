"""What far more samples would take."""
