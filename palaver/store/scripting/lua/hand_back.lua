-- needs: verdict, version
local name = args.step
local step, answer = step_to_settle()
if not step then return answer end
if args.begun then attempt_over(name, step, SpanOutcome.HANDED_BACK, args.trace_note) end
return give_back(name, step, args.begun)
