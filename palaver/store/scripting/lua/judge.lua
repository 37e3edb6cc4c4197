-- needs: judgement
local losses, judged = cjson.decode(args.losses), {}
judge_all(losses, args.unrenewed_before or 0)
for i, loss in ipairs(losses) do
  local step = loss.step
  judged[i] = { row = step.row, age = step.age, judgement = step.judgement }
end
return reply.judged { steps = cjson.encode(judged) }
