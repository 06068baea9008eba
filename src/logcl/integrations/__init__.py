"""LogCL inside other packages; each module needs the extra of its name, as `logcl[avalanche]`."""
