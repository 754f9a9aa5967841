"""Reports: task metrics, thresholds, and the HTML page."""
