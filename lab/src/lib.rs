//! The evidence: experiments with a prediction, peers side by side.
