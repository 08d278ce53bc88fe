-- Ends the session. ARGV 5: 'requested' (if it lives), 'over' (if its time is), 'evicted' (if it has no
-- open stream, and has not been used since the moment of ARGV 6). Answers false when there is none, {0, ...} when it goes on, {1, why, ..., belongings}.
local it = look()
if not it then
  return false
end
local why = ARGV[5]
local goes_on
if why == 'requested' then
  goes_on = it.over
elseif why == 'over' then
  goes_on = not it.over
  why = it.over
else
  goes_on = it.streams > 0 or it.seen > tonumber(ARGV[6])
end
if goes_on then
  return { 0, tell(it) }
end
local belongings = redis.call('HGETALL', KEYS[3])
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
return { 1, why, tell(it), belongings }
