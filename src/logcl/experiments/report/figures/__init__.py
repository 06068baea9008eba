"""Results → figures: functions return a `Drawing`, or None where there is nothing to show."""
