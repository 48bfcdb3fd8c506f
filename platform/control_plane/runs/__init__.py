"""Runs: from submission through attempts and their jobs to the end.

The status of a run is a state machine. `events.transition_run` is the only code that changes a status: it refuses what
`lifecycle.RUN_TRANSITIONS` does not list, and does nothing when the status changed since the caller read it. Users act
through `submission` and `drafts`. Everything else follows from what nodes report: `scheduling` starts attempts, and
`reconciler` and `lease_reaper` compare jobs and nodes with the status, each tick and after each report.

    from → to                                       who, and when
    ----------------------------------------------  ------------------------------------------------------------
    DRAFT → QUEUED                                  drafts.submit_draft: the spec is valid
    QUEUED → STARTING                               scheduling.schedule_runs: slots are free; creates an attempt
    QUEUED → FAILED                                 scheduling.schedule_runs: the pool no longer allows the spec
    QUEUED → PAUSED                                 submission.pause_run: it had no attempt to stop
    QUEUED, PAUSED → STOPPED                        submission.stop_run: so do cancel_run and force_stop_run
    PAUSED → QUEUED                                 submission.resume_run: keeps its position
    STARTING → RUNNING                              reconciler.reconcile_run: every job of the attempt runs
    STARTING, RUNNING → FINALIZING                  reconciler.reconcile_run: the work is done, or failed for good
    PAUSING → FINALIZING                            reconciler.reconcile_run: the work was done before the pause
    STARTING, RUNNING, FINALIZING → RECOVERING      termination.fail_attempt: OUTCOMES allows another attempt
    RECOVERING → QUEUED                             reconciler.reconcile_run: the old attempt has ended
    RECOVERING → FAILED                             reconciler.reconcile_run: no checkpoint was stored
    STARTING, RUNNING, RECOVERING → PAUSING         termination.request_pause: a user, or an error that needs one
    PAUSING → PAUSED                                termination.mark_paused: the attempt has ended
    STARTING, RUNNING, RECOVERING → STOPPING        termination.request_stop: a user, preemption, the wall time
    PAUSING → STOPPING                              termination.request_stop: or request_cancel, with no checkpoint
    STOPPING → STOPPED                              reconciler.reconcile_run: the attempt has ended
    STARTING, RUNNING, RECOVERING → STOPPED         termination.force_terminate: an operator does not wait
    PAUSING, STOPPING, FINALIZING → STOPPED         termination.force_terminate: nor for these
    FINALIZING → SUCCEEDED, STOPPED, FAILED         reconciler.reconcile_run: telemetry and checkpoints have arrived
"""
