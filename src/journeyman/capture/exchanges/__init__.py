"""HTTP exchanges with model servers, as steps and traces."""
