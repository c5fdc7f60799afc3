"""Words and judgement: contract types and pure decisions. No I/O, no clock, no randomness, no logging."""
