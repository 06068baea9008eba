"""What a memory of a user's images would cost and look like at each size: `logcl preview`."""
