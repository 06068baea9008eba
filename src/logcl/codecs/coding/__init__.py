"""Entropy coding: integers as bits, static tables, asymmetric numeral systems."""
