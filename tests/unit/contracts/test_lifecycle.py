from oolong.contracts.lifecycle import ENDED, OUTCOMES, RUN_TRANSITIONS, EndReason, Fault, Retry, RunStatus


def test_every_end_reason_has_an_outcome_that_ends_the_run_or_rests_it():
    assert set(OUTCOMES) == set(EndReason)
    resting = {reason for reason, outcome in OUTCOMES.items() if outcome.status not in ENDED}
    assert resting == {EndReason.PAUSED_BY_USER, EndReason.REWARD_ERROR_RATE, EndReason.BUDGET_EXHAUSTED}
    assert {OUTCOMES[reason].status for reason in resting} == {RunStatus.PAUSED}


def test_ended_runs_never_move_again_and_every_status_is_in_the_table():
    assert set(RUN_TRANSITIONS) == set(RunStatus)
    assert all(not RUN_TRANSITIONS[status] for status in ENDED)


def test_every_status_is_reachable_from_a_draft_and_can_end():
    def reachable(start: RunStatus) -> set[RunStatus]:
        seen, todo = set(), [start]
        while todo:
            status = todo.pop()
            if status not in seen:
                seen.add(status)
                todo.extend(RUN_TRANSITIONS[status])
        return seen

    assert reachable(RunStatus.DRAFT) == set(RunStatus)
    assert all(reachable(status) & ENDED for status in RunStatus)


def test_infra_and_platform_faults_never_use_up_the_users_attempts():
    for outcome in OUTCOMES.values():
        if outcome.fault in (Fault.INFRA, Fault.PLATFORM):
            assert outcome.retry in (Retry.FREE, Retry.NEVER)


def test_what_the_user_stopped_is_never_failed():
    assert OUTCOMES[EndReason.STOPPED_BY_USER].status is RunStatus.STOPPED
    assert OUTCOMES[EndReason.CANCELLED_WHILE_QUEUED].status is RunStatus.STOPPED


def test_every_failure_tells_the_reader_what_to_do():
    for reason, outcome in OUTCOMES.items():
        if outcome.status is RunStatus.FAILED:
            assert outcome.advice, reason
