"""Forecast of what a memory far larger than any tried would take. No torch: plain numbers in and out."""
