"""LogCL in other libraries: a scikit-learn estimator, an Avalanche plugin, training logs."""
