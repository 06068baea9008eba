"""What every part uses: errors, settings, inputs, text, files, progress."""
