"""HTTP exchanges with model servers, as steps and traces: `read` says what one exchange says, `join` which trace it is in."""
