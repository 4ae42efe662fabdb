"""Minimization: line searches, BFGS, L-BFGS."""
