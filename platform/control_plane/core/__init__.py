"""What every app of the control plane uses: errors, pagination, idempotency, clock, the live stream."""
