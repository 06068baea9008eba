"""LogCL as a scikit-learn estimator."""

from logcl.integrations.sklearn.estimator import LogCLClassifier

__all__ = ["LogCLClassifier"]
