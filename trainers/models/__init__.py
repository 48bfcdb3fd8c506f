"""Models: loading and export in Hugging Face format, packed attention, chunked log-probabilities, optimizer."""
