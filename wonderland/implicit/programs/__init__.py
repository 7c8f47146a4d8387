"""Linear and quadratic programs, and the derivatives of their solutions."""
