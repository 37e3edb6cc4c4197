-- Publishes deliveries: to the queue where the broker is this very server, else by the caller of the script.

-- What the caller of the script is to publish.
local deliveries = {}
-- How many deliveries there were.
local published = 0

-- The queue of the broker that has a queue's deliveries, or those that are consumed first.
local function broker_queue(queue, first)
  local kinds = StepKind.OF_QUEUE
  return (kinds[queue] and queue or Queue.OF_TOOLS .. queue) .. (first and Queue.RECOVERED or '')
end

-- Answers whether the queue has it: a server that does not take it says why to the caller of the script.
local function send(to, queue, run, conversation, name, number, title)
  if not Setting.SENDS or title == '' then return false end
  local kinds, templates = StepKind.OF_QUEUE, Delivery.MESSAGES
  local step, call = string.match(name, '^([^/]*)/?(.*)$')
  local kind = kinds[queue] or StepKind.TOOL
  local template = call ~= '' and templates[kind .. '/'] or templates[kind]
  local message = template({ QUEUE = to, RUN = run, CONVERSATION = conversation, STEP = step, CALL = call,
    NUMBER = string.format('%d', number), TITLE = string.sub(cjson.encode(title), 2, -2) })
  return type(redis.pcall('LPUSH', to, message)) == 'number'
end

-- A delivery that is lost is found in `ready` and sent again. `first`: whether it is consumed first. The title is for
-- operators; empty if there is none.
local function publish(queue, first, run, conversation, name, number, title)
  published = published + 1
  local to = broker_queue(queue, first)
  if send(to, queue, run, conversation, name, number, title) then return end
  deliveries[#deliveries + 1] = { to, run, conversation, name, number, title }
end
