-- Publishes deliveries: to the queue where the broker is this very server, else by the caller of the script.

-- What the caller of the script is to publish.
local deliveries = {}
-- How many deliveries there were.
local published = 0

-- Answers whether the queue has it: a server that does not take it says why to the caller of the script.
local function send(queue, run, conversation, name, number, title)
  if not Setting.SENDS or title == '' then return false end
  local template = Delivery.MESSAGES
  local step, call = string.match(name, '^([^/]*)/?(.*)$')
  local of_call = call ~= '' and template[queue .. '/']
  local message = string.gsub(of_call or template[queue], '@(%u+)@', { RUN = run, CONVERSATION = conversation, STEP = step,
    CALL = call, NUMBER = string.format('%d', number), TITLE = string.sub(cjson.encode(title), 2, -2) })
  return type(redis.pcall('LPUSH', queue, message)) == 'number'
end

-- A delivery that is lost is found in READY and sent again. The title is for operators; empty if nobody knows one.
local function publish(queue, run, conversation, name, number, title)
  published = published + 1
  if send(queue, run, conversation, name, number, title) then return end
  deliveries[#deliveries + 1] = { queue, run, conversation, name, number, title }
end
