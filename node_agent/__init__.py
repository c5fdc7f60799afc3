"""The lookout: one small process per machine; knows neither Temporal nor a cloud SDK."""
