-- How long the step was ready, ms; nil for one that goes on in place.
step.waited = step.state == StepState.READY and NOW - step.since or nil
