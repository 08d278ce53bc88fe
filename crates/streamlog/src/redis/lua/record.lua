-- A stream as it is: what is remembered of it, and its events after number `after`.
local function record(stream, events, after)
  local m = redis.call('HMGET', stream, 'e', 'k', 'q', 'n', 's', 'c', 'f', 'o', 'x', 'r')
  for i = 1, 10 do m[i] = m[i] or '' end
  local from = string.format('%d-0', after + 1)
  return {'OK', m, redis.call('XRANGE', events, from, '+')}
end
